// What a step reads back to the host: one buffer of
//   [token | flags | likeliest ids | drawn ids | experts | raw | sampling | scored log-probabilities | likeliest log-probabilities | drawn ones].
// On the traced backend numbers have another size than integers and stand in a buffer of their own. Used by one thread.
//   StepRecord record(device, {.samples = 3}); ...launch into record.token()...; record.read(stream, result);
#pragma once
#include "engine/request.h"
#include "model/forward_counts.h"
#include "tensor/device.h"

namespace lockstep {

struct StepResult {
  std::vector<std::int32_t> row_flags;  // one a row, 0: sound (kernels/*/*.h say which bit is what)
  struct Sampled {
    std::int32_t token, flags;
    float raw_logprob, sampling_logprob;
  };
  std::vector<Sampled> sampled;        // one a slice that samples, in order
  std::vector<float> prompt_logprobs;  // scored_columns a scored row, in order
  std::vector<TokenLogprob> drawn;     // prompt_draws a scored row, in order
  // The likeliest tokens, of sampling slices and of scored rows whose requests ask for them, in order.
  std::vector<std::vector<TokenLogprob>> sampled_top, prompt_top;
  std::vector<std::vector<std::uint16_t>> sampled_experts, prompt_experts;  // the same of experts
  std::vector<std::vector<float>> pooled;  // [pooled_rows, hidden] of each slice that has some, in order
  ForwardCounts work;  // counted by the kernels; what lengths ask for is not in it
};

struct StepRecord {
  struct Sizes {
    std::int64_t samples = 0, scored = 0;  // scored: numbers
    std::int64_t drawn = 0;
    std::int64_t sampled_top = 0, prompt_top = 0;  // rows with likeliest tokens
    std::int64_t top = 0;                          // tokens a row of those
    std::int64_t sampled_experts = 0, prompt_experts = 0;  // rows with experts
    std::int64_t experts = 0;                              // numbers a row of those
  };
  Sizes sizes;

  StepRecord(Device& device, const Sizes& of);
  View token() const { return integers(0, sizes.samples, 1); }
  View flags() const { return integers(sizes.samples, sizes.samples, 1); }
  View sampled_top_id() const { return integers(2 * sizes.samples, sizes.sampled_top, sizes.top); }
  View prompt_top_id() const {
    return integers(2 * sizes.samples + sizes.sampled_top * sizes.top, sizes.prompt_top, sizes.top);
  }
  View raw() const { return numbers(0, sizes.samples, 1); }
  View sampling() const { return numbers(sizes.samples, sizes.samples, 1); }
  View logprobs() const { return numbers(2 * sizes.samples, sizes.scored, 1); }
  View sampled_top_logprob() const { return numbers(2 * sizes.samples + sizes.scored, sizes.sampled_top, sizes.top); }
  View prompt_top_logprob() const {
    return numbers(2 * sizes.samples + sizes.scored + sizes.sampled_top * sizes.top, sizes.prompt_top, sizes.top);
  }
  View drawn_id() const { return integers(2 * sizes.samples + top_cells(), sizes.drawn, 1); }
  View drawn_logprob() const { return numbers(2 * sizes.samples + sizes.scored + top_cells(), sizes.drawn, 1); }
  // Of sampling rows, then of scored ones.
  View experts() const { return integers(2 * sizes.samples + top_cells() + sizes.drawn, sizes.sampled_experts + sizes.prompt_experts, sizes.experts); }
  // All but row_flags and work.
  void read(Stream& stream, StepResult& result) const;

 private:
  std::int64_t top_cells() const { return (sizes.sampled_top + sizes.prompt_top) * sizes.top; }
  std::int64_t expert_cells() const { return (sizes.sampled_experts + sizes.prompt_experts) * sizes.experts; }
  std::int64_t integer_count() const { return 2 * sizes.samples + top_cells() + sizes.drawn + expert_cells(); }
  std::int64_t number_count() const { return 2 * sizes.samples + sizes.scored + top_cells() + sizes.drawn; }
  View integers(std::int64_t begin, std::int64_t rows, std::int64_t cols) const;
  View numbers(std::int64_t begin, std::int64_t rows, std::int64_t cols) const;

  bool traced_;
  Buffer words_, numbers_;
};

}  // namespace lockstep
