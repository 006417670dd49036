#include "planning/rank_alone.h"

#include "train/rank_record.h"

namespace lockstep {
namespace {
constexpr std::size_t kRecordBytesAToken = 24, kRecordBytes = 256;  // log-probability, entropy, loss and mark; the record's head
}  // namespace

std::unique_ptr<CountedRank> rank_alone(const std::vector<TrainSequence>& data, const RankLayout& layout, int rank, bool process) {
  std::vector<std::size_t> records;
  for (const DealtData& own : deal_sequences(data, layout)) records.push_back(kRecordBytes + kRecordBytesAToken * static_cast<std::size_t>(own.tokens(data)));
  return std::make_unique<CountedRank>(layout, rank, records, process);
}

}  // namespace lockstep
