// The device side of one step on one rank: uploads the planned rows, runs the model, the head and the sampler, and reads
// one record back. Where ranks share the model (engine/rank_steps.h) all run the same plan, and the first one samples.
// Knows no queue and no request beyond what it needs to sample; sizes follow from lengths alone. Used by one thread.
//   runner.run(weights, scheduler.plan(), result);   // of ranks beside the first one the result is StepResult::work alone
#pragma once
#include <span>

#include "engine/scheduler.h"
#include "engine/step_record.h"
#include "model/runtime.h"

namespace lockstep {

// Whether the next token of a slice's sequence is sampled.
inline bool samples(const PlannedSlice& p) { return p.last && p.sequence->sampling.max_tokens > 0; }
// Rows of a slice, from its first on, whose next token is one of the prompt and whose log-probability is asked for.
inline std::int64_t scored_rows(const PlannedSlice& p) {
  if (!p.sequence->scores_prompt) return 0;
  return std::max<std::int64_t>(0, std::min(p.begin + p.count, p.sequence->prompt_length - 1) - p.begin);
}
// Rows at the end of a slice whose hidden states are read back.
inline std::int64_t pooled_rows(const PlannedSlice& p) {
  const Pooling pooling = p.sequence->pooling;
  return pooling == Pooling::mean ? p.count : pooling == Pooling::last && p.last ? 1 : 0;
}
// Log-probabilities of such a row: the prompt's own token, then the row's targets.
inline std::int64_t scored_columns(const Sequence& s) { return 1 + s.prompt_targets_per_row; }
inline bool tells_top(const Sequence& s) { return s.sampling.top_logprobs > 0; }

class StepRunner {
 public:
  // `sharding` null: this rank has the whole model.
  StepRunner(Runtime& runtime, std::int64_t pages, std::int64_t page_size, const Sharding* sharding = nullptr);
  void run(const WeightSet& weights, const std::vector<PlannedSlice>& plan, StepResult& result);

 private:
  // Which rows' experts go where in the record: scored rows, and those that are sampled from. `keep` holds their numbers.
  ExpertRecord experts_wanted(const std::vector<PlannedSlice>& plan, const StepRecord& record, Buffer& keep);
  void score_prompts(Context& context, const std::vector<PlannedSlice>& plan, const View& hidden,
                     const StepRecord& record);
  void likeliest_of_prompts(Context& context, const std::vector<PlannedSlice>& plan, const View& hidden,
                            const StepRecord& record);
  void draw_at_prompts(Context& context, const std::vector<PlannedSlice>& plan, const View& hidden, const StepRecord& record);
  // The logits of prompt rows, some at a time, over all slices that `wants` more than scores of: told(slice, row of hidden, first row of
  // the slice, logits).
  template <class W, class F>
  void each_prompt_chunk(Context& context, const std::vector<PlannedSlice>& plan, const View& hidden, const W& wants, const F& told);
  void sample(Context& context, const std::vector<PlannedSlice>& plan, const View& hidden, const StepRecord& record);
  void add_adapters(Context& context, const View& y, const View& hidden, const View& index, std::int64_t begin);
  bool first() const { return !sharding_ || sharding_->place().rank == 0; }

  Runtime& runtime_;
  const Sharding* sharding_;
  KvCache cache_;
  // Kept between steps, so that a step allocates nothing a row.
  std::vector<SequenceSlice> slices_;
  std::vector<std::int32_t> integers_;
  std::vector<float> floats_;
  std::vector<Sequence*> sampling_;
};

}  // namespace lockstep
