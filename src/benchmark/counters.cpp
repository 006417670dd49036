#include "benchmark/counters.h"

#include "base/error.h"
#include "benchmark/cached_slices.h"
#include "model/kv_cache.h"
#include "model/runtime.h"

namespace lockstep {

CounterTiming time_counters(const OpenedModel& opened, const CounterCase& shape, const TimeBudget& budget) {
  Runtime& runtime = *opened.runtime;
  const std::int64_t end = shape.context + shape.tokens, pages = pages_of(end);
  if (end > runtime.max_positions)
    fail(ErrorCode::invalid_argument, "{} tokens behind {} are more than the model's context of {}", shape.tokens, shape.context, runtime.max_positions);
  const std::shared_ptr<const WeightSet> weights = opened.weight_set();
  KvCache cache(runtime.backend, opened.model->cache_shapes(runtime.profile), runtime.profile, shape.sequences * pages, kBenchmarkPage);

  CounterTiming result;
  const auto forward = [&](const Batch& batch, bool counts) {
    ForwardOptions options;
    options.counts = counts;
    Context context = runtime.context(*weights, cache, batch, options);
    opened.model->forward(context);
    const ForwardCounts found = context.counters().read();  // read as a step of the engine reads them
    runtime.backend.stream().synchronize();
    if (counts) result.pairs_read = found.pairs_read, result.expert_rows = found.expert_rows;
  };
  if (shape.context > 0) forward(Batch(runtime.backend, slices_between(opened, shape.sequences, 0, shape.context, pages), kBenchmarkPage, false), false);
  const Batch batch(runtime.backend, slices_between(opened, shape.sequences, shape.context, end, pages), kBenchmarkPage, false);
  const std::vector<Timing> timings = time_in_turns(budget, {[&] { forward(batch, true); }, [&] { forward(batch, false); }});
  result.with = timings[0], result.without = timings[1];
  return result;
}

}  // namespace lockstep
