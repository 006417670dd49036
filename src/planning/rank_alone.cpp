#include "planning/rank_alone.h"

#include <algorithm>

#include "train/rank_record.h"
#include "train/sequence_place.h"

namespace lockstep {
namespace {
constexpr std::size_t kRecordBytesAToken = 24, kRecordBytes = 256;  // log-probability, entropy, loss and mark; the record's head
}  // namespace

std::unique_ptr<CountedRank> rank_alone(const std::vector<TrainSequence>& data, const RankLayout& layout, int rank, bool process) {
  RankLayout shared = layout;  // an adapter's trainer deals no rows
  shared.rows = ReplicaRows::shared;
  std::vector<std::size_t> records(static_cast<std::size_t>(layout.size()));
  for (const RankLayout& dealt_to : {layout_of_sequences(layout), shared}) {
    std::vector<std::size_t> of_replicas;
    for (const DealtData& own : deal_sequences(data, dealt_to))
      of_replicas.push_back(kRecordBytes + kRecordBytesAToken * static_cast<std::size_t>(own.tokens(data)));
    for (int r = 0; r < layout.size(); ++r) {
      std::size_t& most = records[static_cast<std::size_t>(r)];
      most = std::max(most, of_replicas[static_cast<std::size_t>(dealt_to.data_of(r))]);
    }
  }
  return std::make_unique<CountedRank>(layout, rank, records, process);
}

}  // namespace lockstep
