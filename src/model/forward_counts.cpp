#include "model/forward_counts.h"

#include <algorithm>

#include "base/error.h"
#include "model/model.h"

namespace lockstep {

namespace {
constexpr std::int64_t kExpertMatrices = 3;  // gate, up, down

// 1 + 2 + ... + n.
std::int64_t sum_to(std::int64_t n) { return n * (n + 1) / 2; }
}  // namespace

void ForwardCounts::expect(const Model& model, std::int64_t begin, std::int64_t end, bool dense) {
  const ModelFacts& facts = model.facts();
  const std::int64_t visible = sum_to(end) - sum_to(begin);
  // Keys of the rows of one head, of which each sees k at most (0: all).
  const auto keys = [&](std::int64_t k) {
    const std::int64_t whole = sum_to(std::min(end, k)) - sum_to(std::min(begin, k)), cut = k * (std::max(end, k) - std::max(begin, k));
    return k > 0 ? whole + cut : visible;
  };
  const std::int64_t others = facts.layers - facts.windowed_layers;
  pairs_visible += visible * facts.attention_heads * facts.layers;
  pairs_selected += (keys(facts.window) * facts.windowed_layers + keys(dense ? 0 : facts.select_top_k) * others) * facts.attention_heads;
  expert_rows_chosen += (end - begin) * model.facts().expert_shape().row() * kExpertMatrices;
  segment_rows.asked += (end - begin) * model.segments();
}

void ForwardCounts::expect_read(const Model& model, std::int64_t rows) { segment_rows.asked += rows * model.segments(); }

std::string ForwardCounts::fault() const {
  if (pairs_read != pairs_selected)
    return fmt::format("attention read {} pairs of a query head and a key, the selection has {} of {} visible ones", pairs_read, pairs_selected, pairs_visible);
  if (expert_rows != expert_rows_chosen)
    return fmt::format("matrices of experts were multiplied with {} rows, the router chose {}", expert_rows, expert_rows_chosen);
  if (segment_rows.made + segment_rows.read != segment_rows.asked)
    return fmt::format("segments of layers made {} rows and read {} that were kept, the batches have {}", segment_rows.made, segment_rows.read,
                       segment_rows.asked);
  return {};
}

SegmentRows& SegmentRows::operator+=(const SegmentRows& other) {
  made += other.made;
  read += other.read;
  again += other.again;
  asked += other.asked;
  return *this;
}

SegmentRows SegmentRows::operator-(const SegmentRows& earlier) const {
  return {made - earlier.made, read - earlier.read, again - earlier.again, asked - earlier.asked};
}

ForwardCounts& ForwardCounts::operator+=(const ForwardCounts& other) {
  pairs_read += other.pairs_read;
  expert_rows += other.expert_rows;
  pairs_visible += other.pairs_visible;
  pairs_selected += other.pairs_selected;
  expert_rows_chosen += other.expert_rows_chosen;
  segment_rows += other.segment_rows;
  return *this;
}

ForwardCounts ForwardCounts::operator-(const ForwardCounts& earlier) const {
  return {pairs_read - earlier.pairs_read,
          expert_rows - earlier.expert_rows,
          pairs_visible - earlier.pairs_visible,
          pairs_selected - earlier.pairs_selected,
          expert_rows_chosen - earlier.expert_rows_chosen,
          segment_rows - earlier.segment_rows};
}

}  // namespace lockstep
