#include "benchmark/counters.h"

#include "base/error.h"
#include "base/philox.h"
#include "model/kv_cache.h"
#include "model/runtime.h"

namespace lockstep {

namespace {
constexpr std::int64_t kPageSize = 16;

// The sequences' positions [begin, end), each with pages of its own.
std::vector<SequenceSlice> slices_between(const OpenedModel& opened, std::int64_t sequences, std::int64_t begin, std::int64_t end, std::int64_t pages) {
  std::vector<SequenceSlice> slices(static_cast<std::size_t>(sequences));
  for (std::int64_t s = 0; s < sequences; ++s) {
    SequenceSlice& slice = slices[static_cast<std::size_t>(s)];
    RandomSequence random(1, RandomStream::shuffle, static_cast<std::uint64_t>(s));
    for (std::int64_t t = 0; t < end; ++t) {
      const auto token = static_cast<std::int32_t>(random.uniform() * static_cast<double>(opened.model->facts().vocabulary));
      if (t >= begin) slice.tokens.push_back(token);
    }
    slice.begin = begin;
    for (std::int64_t p = 0; p < pages; ++p) slice.pages.push_back(static_cast<std::int32_t>(s * pages + p));
  }
  return slices;
}
}  // namespace

CounterTiming time_counters(const OpenedModel& opened, const CounterCase& shape, const TimeBudget& budget) {
  Runtime& runtime = *opened.runtime;
  const std::int64_t end = shape.context + shape.tokens, pages = (end + kPageSize - 1) / kPageSize;
  if (end > runtime.max_positions)
    fail(ErrorCode::invalid_argument, "{} tokens behind {} are more than the model's context of {}", shape.tokens, shape.context, runtime.max_positions);
  const std::shared_ptr<const WeightSet> weights = opened.weight_set();
  KvCache cache(runtime.backend, opened.model->cache_shapes(runtime.profile), runtime.profile, shape.sequences * pages, kPageSize);

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
  if (shape.context > 0) forward(Batch(runtime.backend, slices_between(opened, shape.sequences, 0, shape.context, pages), kPageSize, false), false);
  const Batch batch(runtime.backend, slices_between(opened, shape.sequences, shape.context, end, pages), kPageSize, false);
  const std::vector<Timing> timings = time_in_turns(budget, {[&] { forward(batch, true); }, [&] { forward(batch, false); }});
  result.with = timings[0], result.without = timings[1];
  return result;
}

}  // namespace lockstep
