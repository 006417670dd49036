#include "engine/step_record.h"

#include <bit>

namespace lockstep {

StepRecord::StepRecord(Device& device, const Sizes& of) : sizes(of), traced_(device.traced()) {
  words_ = device.allocate_zero(DType::i32, 1, integer_count() + (traced_ ? 0 : number_count()),
                                MemoryCategory::activations);
  if (traced_) numbers_ = device.allocate(DType::f32, 1, number_count(), MemoryCategory::activations);
}

View StepRecord::integers(std::int64_t begin, std::int64_t rows, std::int64_t cols) const {
  return words_.view().column_range(begin, rows * cols).reshape(rows, cols);
}

View StepRecord::numbers(std::int64_t begin, std::int64_t rows, std::int64_t cols) const {
  if (traced_) return numbers_.view().column_range(begin, rows * cols).reshape(rows, cols);
  View v = integers(integer_count() + begin, rows, cols);
  v.dtype = DType::f32;
  return v;
}

void StepRecord::read(Stream& stream, StepResult& result) const {
  const std::vector<std::int32_t> w = stream.read_ints(words_.view()).get();
  std::vector<float> n;
  if (traced_) n = stream.read(numbers_.view()).get();
  const auto number = [&](std::int64_t i) {
    return traced_ ? n[static_cast<std::size_t>(i)]
                   : std::bit_cast<float>(w[static_cast<std::size_t>(integer_count() + i)]);
  };
  const std::int64_t samples = sizes.samples, scored = sizes.scored;
  result.sampled.resize(static_cast<std::size_t>(samples));
  for (std::int64_t i = 0; i < samples; ++i)
    result.sampled[static_cast<std::size_t>(i)] = {
        w[static_cast<std::size_t>(i)], w[static_cast<std::size_t>(samples + i)], number(i), number(samples + i)};
  result.prompt_logprobs.resize(static_cast<std::size_t>(scored));
  for (std::int64_t i = 0; i < scored; ++i)
    result.prompt_logprobs[static_cast<std::size_t>(i)] = number(2 * samples + i);
  std::int64_t id_at = 2 * samples, logprob_at = 2 * samples + scored;
  const auto tops = [&](std::int64_t rows, std::vector<std::vector<TokenLogprob>>& out) {
    out.assign(static_cast<std::size_t>(rows), {});
    for (std::vector<TokenLogprob>& row : out)
      for (std::int64_t i = 0; i < sizes.top; ++i, ++id_at, ++logprob_at)
        if (const std::int32_t id = w[static_cast<std::size_t>(id_at)]; id >= 0)
          row.push_back({id, number(logprob_at)});
  };
  tops(sizes.sampled_top, result.sampled_top);
  tops(sizes.prompt_top, result.prompt_top);
  result.drawn.resize(static_cast<std::size_t>(sizes.drawn));
  for (TokenLogprob& one : result.drawn) one = {w[static_cast<std::size_t>(id_at++)], number(logprob_at++)};
  const auto experts = [&](std::int64_t rows, std::vector<std::vector<std::uint16_t>>& out) {
    out.assign(static_cast<std::size_t>(rows), {});
    for (std::vector<std::uint16_t>& row : out)
      for (std::int64_t i = 0; i < sizes.experts; ++i) row.push_back(static_cast<std::uint16_t>(w[static_cast<std::size_t>(id_at++)]));
  };
  experts(sizes.sampled_experts, result.sampled_experts);
  experts(sizes.prompt_experts, result.prompt_experts);
}

}  // namespace lockstep
