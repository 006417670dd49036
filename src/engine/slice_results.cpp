#include "engine/slice_results.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/error.h"

namespace lockstep {

void take_scores(Sequence& s, std::int64_t begin, std::size_t slice, StepResult& result) {
  const auto each = [&](Column column, const auto& take) {
    const std::span<const std::int32_t> rows = result.wants->of(slice, column).rows;
    for (std::size_t i = 0; i < rows.size(); ++i) take(i, static_cast<std::size_t>(begin + rows[i]));
  };
  Generation& g = s.generation;
  each(Column::scored, [&](std::size_t i, std::size_t position) {
    const std::span<const float> row = result.scored(slice, i);
    g.prompt_logprobs[position] = row[0];
    std::copy(row.begin() + 1, row.end(), g.prompt_target_logprobs.begin() + static_cast<std::ptrdiff_t>(position * (row.size() - 1)));
  });
  each(Column::scored_top, [&](std::size_t i, std::size_t position) { g.prompt_top_logprobs[position] = std::move(result.scored_top(slice)[i]); });
  each(Column::drawn, [&](std::size_t i, std::size_t position) {
    const std::span<const TokenLogprob> row = result.drawn(slice, i);
    std::copy(row.begin(), row.end(), g.prompt_draws.begin() + static_cast<std::ptrdiff_t>(position * row.size()));
  });
  each(Column::experts, [&](std::size_t i, std::size_t position) {
    if (position < g.prompt_experts.size()) g.prompt_experts[position] = std::move(result.experts(slice)[i]);
  });
}

GeneratedToken sampled_token(const Sequence& s, std::uint64_t version, std::size_t slice, std::size_t i, StepResult& result) {
  const StepResult::Sampled& sampled = result.sampled(slice)[i];
  GeneratedToken token{sampled.token, sampled.raw_logprob, sampled.sampling_logprob, version, {}, {}, {}, s.mixed_versions};
  // Where the same row stands in a column that has some of the rows.
  const auto place = [&](Column column) {
    const std::span<const std::int32_t> rows = result.wants->of(slice, column).rows;
    return static_cast<std::size_t>(std::lower_bound(rows.begin(), rows.end(), result.wants->of(slice, Column::sampled).rows[i]) - rows.begin());
  };
  if (tells_top(s)) token.top = std::move(result.sampled_top(slice)[i]);
  if (s.tells_experts) token.experts = std::move(result.experts(slice)[place(Column::experts)]);
  if (s.tells_kept) token.kept = std::move(result.kept(slice)[place(Column::kept)]);
  return token;
}

void pool_hidden(Sequence& s, std::span<const float> rows, std::int64_t end, std::int64_t hidden) {
  const auto width = static_cast<std::size_t>(hidden);
  s.pooled_sum.resize(width);
  std::int64_t position = end - static_cast<std::int64_t>(rows.size() / width);
  if (s.pooling == Pooling::last) position = s.pooled_positions = 0;
  for (const float* row = rows.data(); row != rows.data() + rows.size(); row += width, ++position) {
    if (position < s.pooled_positions) continue;
    ++s.pooled_positions;
    for (std::size_t i = 0; i < width; ++i) s.pooled_sum[i] += row[i];
  }
}

std::string describe_fault(const Sequence& s, std::int32_t flags, std::int64_t position) {
  constexpr std::int32_t kNothingAllowed = 1 << 4;
  if (flags == kNothingAllowed && !s.constraint_error.empty())
    return fmt::format("the constraint failed at token {}: {}", s.generation.tokens.size(), s.constraint_error);
  if (flags == kNothingAllowed) return fmt::format("the constraint allows no token after {} generated ones", s.generation.tokens.size());
  constexpr std::string_view places[] = {"the indexer's scores", "the router's scores", "a log-probability", "the logits"};
  std::string text;
  for (int bit = 0; bit < 4; ++bit)
    if (flags & 1 << bit) text += (text.empty() ? "" : ", ") + std::string(places[bit]);
  if (text.empty()) text = fmt::format("flags {}", flags);
  return fmt::format("a NaN or an infinity in {} at position {} of the request", text, position);
}

bool pooled_soundly(Sequence& s) {
  for (const double sum : s.pooled_sum) s.generation.pooled.push_back(static_cast<float>(sum / static_cast<double>(s.pooled_positions)));
  if (std::all_of(s.generation.pooled.begin(), s.generation.pooled.end(), [](float x) { return std::isfinite(x); })) return true;
  s.generation.error = "a NaN or an infinity in the hidden states of the request";
  return false;
}

}  // namespace lockstep
