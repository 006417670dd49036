// The device side of one step: uploads the planned rows, runs the model, the head and the sampler, and reads one record
// back. Knows no queue and no request beyond what it needs to sample; sizes follow from lengths alone. Used by one
// thread at a time.
//   runner.run(weights, scheduler.plan(), result);
#pragma once
#include <span>

#include "engine/scheduler.h"
#include "model/runtime.h"

namespace lockstep {

struct StepResult {
  std::vector<std::int32_t> row_flags;  // one a row, 0: sound (kernels/*/*.h say which bit is what)
  struct Sampled {
    std::int32_t token, flags;
    float raw_logprob, sampling_logprob;
  };
  std::vector<Sampled> sampled;        // one a slice that samples, in order
  std::vector<float> prompt_logprobs;  // one a scored row, in order
};

// Whether the next token of a slice's sequence is sampled.
inline bool samples(const PlannedSlice& p) { return p.last && p.sequence->sampling.max_tokens > 0; }
// Rows of a slice, from its first on, whose next token is one of the prompt and whose log-probability is asked for.
inline std::int64_t scored_rows(const PlannedSlice& p) {
  if (!p.sequence->scores_prompt) return 0;
  return std::max<std::int64_t>(0, std::min(p.begin + p.count, p.sequence->prompt_length - 1) - p.begin);
}

class StepRunner {
 public:
  StepRunner(Runtime& runtime, std::int64_t pages, std::int64_t page_size);
  void run(const WeightSet& weights, const std::vector<PlannedSlice>& plan, StepResult& result);

 private:
  struct Record;
  void score_prompts(const WeightSet& weights, const std::vector<PlannedSlice>& plan, const View& hidden,
                     const View& flags, const View& logprobs);
  void sample(const WeightSet& weights, const std::vector<PlannedSlice>& plan, const View& hidden,
              const Record& record);

  Runtime& runtime_;
  KvCache cache_;
  // Kept between steps, so that a step allocates nothing a row.
  std::vector<SequenceSlice> slices_;
  std::vector<std::int32_t> integers_;
  std::vector<float> floats_;
};

}  // namespace lockstep
