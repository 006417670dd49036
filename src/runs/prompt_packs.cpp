#include "runs/prompt_packs.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace lockstep {
namespace {

// The prompt without its last token, which predicts.
std::vector<std::int32_t> prompt_of(const TrainSequence& s) { return {s.tokens.begin(), s.tokens.begin() + unweighted_rows(s)}; }

class PackedSource final : public SftSource {
 public:
  PackedSource(std::vector<TrainSequence> sequences, std::uint64_t seed) : sequences_(std::move(sequences)), seed_(seed) {
    std::map<std::vector<std::int32_t>, std::size_t> known;
    for (std::size_t s = 0; s < sequences_.size(); ++s) {
      const auto [pack, fresh] = known.try_emplace(prompt_of(sequences_[s]), packs_.size());
      if (fresh) packs_.emplace_back();
      packs_[pack->second].push_back(s);
    }
  }
  std::int64_t size() const override { return std::ssize(sequences_); }
  std::string digest() const override { return data_digest(sequences_); }
  std::vector<TrainSequence> batch(std::int64_t step, std::int64_t count) const override {
    std::vector<TrainSequence> result;
    std::vector<std::size_t> places;
    std::int64_t epoch = -1;
    for (std::int64_t i = step * count; i < (step + 1) * count; ++i) {
      if (i / size() != epoch) places = places_of(epoch = i / size());
      result.push_back(sequences_[places[static_cast<std::size_t>(i % size())]]);
    }
    declare_prompts(result);
    return result;
  }

 private:
  std::vector<std::size_t> places_of(std::int64_t epoch) const {
    std::vector<std::size_t> places;
    for (const std::size_t pack : shuffled_places(packs_.size(), seed_, epoch, std::ssize(packs_)))
      places.insert(places.end(), packs_[pack].begin(), packs_[pack].end());
    return places;
  }
  std::vector<TrainSequence> sequences_;
  std::vector<std::vector<std::size_t>> packs_;
  std::uint64_t seed_;
};
}  // namespace

std::unique_ptr<SftSource> packed_source(std::vector<TrainSequence> sequences, std::uint64_t seed) {
  return std::make_unique<PackedSource>(std::move(sequences), seed);
}

PackedRows packed_rows(const SftSource& source, std::int64_t batch, std::int64_t from) {
  PackedRows rows;
  for (std::int64_t step = 0; step * batch < source.size(); ++step) {
    std::map<std::int64_t, std::int64_t> members;  // of each group so far
    for (const TrainSequence& s : source.batch(step, batch)) {
      rows.all += std::ssize(s.tokens);
      if (s.prefix_group < 0 || s.shared_prefix == 0) continue;
      const std::int64_t together = ++members[s.prefix_group];
      rows.most_together = std::max(rows.most_together, together);
      if (together > 1 && s.shared_prefix + 1 >= from) rows.saved += s.shared_prefix;
    }
  }
  return rows;
}

void check_packs(const PackedRows& rows, std::int64_t micro_batch) {
  if (micro_batch == 0 || rows.most_together <= micro_batch) return;
  fail(ErrorCode::invalid_argument,
       "micro_batch is {}, and more lines of one prompt share it in the backward, in one; allowed is a larger one, 0, or share_prompts off", micro_batch);
}

}  // namespace lockstep
