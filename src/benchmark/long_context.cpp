#include "benchmark/long_context.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/free_memory.h"
#include "benchmark/cached_slices.h"
#include "benchmark/noise.h"
#include "kernels/kernel_profile.h"
#include "kernels/launch.h"
#include "model/kv_cache.h"
#include "model/runtime.h"

namespace lockstep {

namespace {
// Seconds that kernels whose name begins so took, in all.
double seconds_of(const std::vector<KernelTotals>& totals, std::string_view beginning) {
  double sum = 0;
  for (const KernelTotals& kernel : totals) sum += kernel.name.starts_with(beginning) ? kernel.seconds : 0;
  return sum;
}

struct RunSeconds {
  double all = 0, indexer = 0, attention = 0;
};

// Every position gets values of its own, so that no two keys are alike.
void fill(Stream& stream, const View& cache, std::uint64_t seed) {
  const std::int64_t rows_at_once = std::max<std::int64_t>(1, (std::int64_t{1} << 22) / cache.cols);
  for (std::int64_t begin = 0; begin < cache.rows; begin += rows_at_once) {
    const std::int64_t rows = std::min(rows_at_once, cache.rows - begin);
    stream.write(cache.row_range(begin, rows), noise(rows * cache.cols, seed + static_cast<std::uint64_t>(begin)));
  }
  stream.synchronize();
}

// The layers' indexers once more on random queries, with a selection of a single key: what scoring takes, and hardly any selecting.
class ScoresAlone {
 public:
  ScoresAlone(const OpenedModel& opened, const KvCache& cache, const Batch& batch) : runtime_(*opened.runtime), cache_(cache), batch_(batch) {
    for (const KvCache::Layer& layer : cache.layers)
      if (layer.index_key.view()) size_ = layer.index_key.view().cols;
    if (size_ == 0) return;
    heads_ = opened.model->config().at("index_n_heads").get<std::int64_t>();
    Device& device = runtime_.backend.device();
    const std::int64_t rows = batch.count();
    q_ = device.upload(noise(rows * heads_ * size_, 7), rows, heads_ * size_, MemoryCategory::activations);
    w_ = device.upload(noise(rows * heads_, 8), rows, heads_, MemoryCategory::activations);
    selection_ = device.allocate(DType::i32, rows, 1, MemoryCategory::activations);
    count_ = device.allocate(DType::i32, rows, 1, MemoryCategory::activations);
    flags_ = device.allocate_zero(DType::i32, rows, 1, MemoryCategory::activations);
  }
  bool any() const { return size_ > 0; }
  void run() {
    for (const KvCache::Layer& layer : cache_.layers)
      if (layer.index_key.view())
        runtime_.backend.launch(&KernelTable::index_select, IndexSelect{selection_.view(), count_.view(), flags_.view(), q_.view(), w_.view(),
                                                                        layer.index_key.view(), batch_.rows(), heads_, size_, 1});
  }

 private:
  Runtime& runtime_;
  const KvCache& cache_;
  const Batch& batch_;
  std::int64_t heads_ = 0, size_ = 0;
  Buffer q_, w_, selection_, count_, flags_;
};

ContextParts time_rows(const OpenedModel& opened, const WeightSet& weights, KvCache& cache, std::int64_t tokens, std::int64_t rows, const TimeBudget& budget) {
  Runtime& runtime = *opened.runtime;
  const Batch batch(runtime.backend, slices_between(opened, 1, tokens - rows, tokens, pages_of(tokens)), kBenchmarkPage, false);
  const auto forward = [&] {
    Context context = runtime.context(weights, cache, batch);
    opened.model->forward(context);
    runtime.backend.stream().synchronize();
  };
  forward();  // fills caches; measured from here on
  const KernelProfile profile;
  std::vector<RunSeconds> runs;
  RunSeconds before;
  time_repeated(budget, [&] {
    const auto begin = std::chrono::steady_clock::now();
    forward();
    const double all = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const std::vector<KernelTotals> totals = profile.totals();
    const RunSeconds now{all, seconds_of(totals, "index_select"), seconds_of(totals, "attention")};
    runs.push_back({all, now.indexer - before.indexer, now.attention - before.attention});
    before = now;
  });
  runs.erase(runs.begin());
  std::nth_element(runs.begin(), runs.begin() + static_cast<std::ptrdiff_t>(runs.size() / 2), runs.end(),
                   [](const RunSeconds& a, const RunSeconds& b) { return a.all < b.all; });
  const RunSeconds middle = runs[runs.size() / 2];
  const double a_token = 1.0 / static_cast<double>(rows);
  ContextParts parts{.all = middle.all * a_token,
                     .indexer = middle.indexer * a_token,
                     .attention = middle.attention * a_token,
                     .rest = (middle.all - middle.indexer - middle.attention) * a_token,
                     .runs = static_cast<std::int64_t>(runs.size())};
  if (ScoresAlone scores(opened, cache, batch); scores.any())
    parts.selection = std::max(0.0, parts.indexer - time_repeated(budget, [&] { scores.run(), runtime.backend.stream().synchronize(); }).median * a_token);
  return parts;
}
}  // namespace

ContextTiming time_context(const OpenedModel& opened, const ContextCase& shape, const TimeBudget& budget) {
  Runtime& runtime = *opened.runtime;
  if (runtime.backend.device().kind() == BackendKind::cuda)
    fail(ErrorCode::unsupported, "what a token takes is measured in the kernels of a processor, not on the device 'cuda'");
  if (shape.tokens > runtime.max_positions)
    fail(ErrorCode::invalid_argument, "a text of {} tokens is longer than the model's context of {}", shape.tokens, runtime.max_positions);
  if (shape.tokens < shape.window)
    fail(ErrorCode::invalid_argument, "a text of {} tokens is shorter than the window of {} that is timed at its end", shape.tokens, shape.window);
  const std::vector<CacheShape> shapes = opened.model->cache_shapes(runtime.profile);
  ContextTiming timing{.cache_bytes = KvCache::bytes_a_position(shapes, runtime.profile)};
  const std::int64_t pages = pages_of(shape.tokens);
  if (runtime.backend.device().kind() == BackendKind::cpu)
    check_memory(timing.cache_bytes * pages * kBenchmarkPage, fmt::format("the cache of {} tokens", shape.tokens));
  const std::shared_ptr<const WeightSet> weights = opened.weight_set();
  KvCache cache(runtime.backend, shapes, runtime.profile, pages, kBenchmarkPage);
  std::uint64_t seed = 1;
  for (const KvCache::Layer& layer : cache.layers) {
    fill(runtime.backend.stream(), layer.entry.view(), seed++ << 32);
    if (layer.index_key.view()) fill(runtime.backend.stream(), layer.index_key.view(), seed++ << 32);
  }
  timing.prefill = time_rows(opened, *weights, cache, shape.tokens, shape.window, budget);
  timing.decode = time_rows(opened, *weights, cache, shape.tokens, 1, budget);
  return timing;
}

}  // namespace lockstep
