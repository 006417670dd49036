#include "planning/shape_memory.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace lockstep {
namespace {
constexpr std::int64_t kHeadRows = 1024;                       // of one chunk of logits
constexpr double kBf16 = 2, kInt4Expert = 0.5 + 2.0 / 32;      // bytes per weight: int4 in groups of 32 with a bf16 scale
constexpr double kFp32 = 4, kMoments = 8, kAdapterState = 16;  // of an adapter: weights, gradients, two moments

std::int64_t up(double bytes) { return static_cast<std::int64_t>(std::ceil(bytes)); }
std::int64_t up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
}  // namespace

std::string ShapeLayout::text() const { return fmt::format("tp{} pp{} cp{} ep{}", tp, pp, cp, ep); }
std::int64_t ShapeMemory::total() const { return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}); }

ShapeMemory shape_memory(const ModelSizes& sizes, const ShapeWork& work, std::int64_t accelerators, const ShapeLayout& layout, bool optimizer_on_host) {
  const double tp = static_cast<double>(layout.tp), shards = static_cast<double>(accelerators / layout.pp);
  const double expert_bytes = work.int4_experts ? kInt4Expert : kBf16;
  // The fullest stage: its share of layers, rounded up, and the larger table (both without stages).
  const double stage = static_cast<double>(up(sizes.layers, layout.pp)) / static_cast<double>(sizes.layers);
  double dense = 0, experts = 0, cache_by_heads = 0, cache_whole = 0, adapted = 0;
  std::int64_t widest = 0, dense_layer = 0, expert_layer = 0;
  for (const LayerBlock& b : sizes.blocks) {
    if (b.count == 0) continue;
    const double count = static_cast<double>(b.count) * stage;
    dense += count * static_cast<double>(b.dense);
    experts += count * static_cast<double>(b.experts);
    (b.cache_by_heads ? cache_by_heads : cache_whole) += count * static_cast<double>(b.cache);
    adapted += count * static_cast<double>(b.adapted);
    widest = std::max(widest, b.width);
    dense_layer = std::max(dense_layer, b.dense);
    expert_layer = std::max(expert_layer, b.experts);
  }
  dense += static_cast<double>(layout.pp == 1 ? sizes.embedding + sizes.head : std::max(sizes.embedding, sizes.head)) + static_cast<double>(sizes.rest);

  const bool trains = work.mode != ShapeMode::reference, all = work.mode == ShapeMode::policy;
  const double tokens = static_cast<double>(up(work.context, layout.cp)), hidden = static_cast<double>(sizes.hidden);
  ShapeMemory memory;
  const auto set = [&](ShapePart part, double bytes) { memory.bytes[static_cast<std::size_t>(part)] = up(bytes); };
  // Masters count as weights and moments as the optimizer's, as a trainer's memory accounts have them; with the optimizer on the host, both are there.
  const double masters = all ? (dense + experts) * kFp32 / shards : 0, moments = all ? (dense + experts) * kMoments / shards : 0;
  set(ShapePart::weights, (dense * kBf16 + experts * expert_bytes) / shards + (optimizer_on_host ? 0 : masters));
  if (all) set(ShapePart::gradients, (dense + experts) * kFp32 / shards);
  if (optimizer_on_host) memory.host = up(masters + moments);
  else set(ShapePart::optimizer, moments);
  if (work.mode == ShapeMode::lora) set(ShapePart::adapters, adapted * static_cast<double>(work.lora_rank) * kAdapterState / shards);
  // With activation checkpointing every layer's input is stored (each pipeline stage has as many sequences in flight as there are stages), and the
  // activations of one layer at a time are recomputed, with their gradients.
  const double kept = trains ? tokens * hidden * static_cast<double>(sizes.layers) * stage * static_cast<double>(layout.pp) : 2 * tokens * hidden;
  set(ShapePart::activations, (kept + tokens * static_cast<double>(widest) * (trains ? 2 : 1)) * kBf16 / tp);
  set(ShapePart::cache, tokens * (cache_by_heads / tp + cache_whole) * kBf16);
  set(ShapePart::head, std::min<double>(tokens, kHeadRows) * static_cast<double>(sizes.vocabulary) / tp * kFp32 * (trains ? 2 : 1));
  if (shards > 1) {  // sharded: one layer gathered and the next under way, one layer's gradients before the reduce-scatter, and the embedding
    const double gathered_dense = static_cast<double>(dense_layer) / tp,
                 gathered_experts = static_cast<double>(expert_layer) / (tp * static_cast<double>(layout.ep));
    set(ShapePart::workspace, 2 * (gathered_dense * kBf16 + gathered_experts * expert_bytes) + (all ? (gathered_dense + gathered_experts) * kFp32 : 0) +
                                  static_cast<double>(sizes.embedding) / tp * kBf16);
  }
  return memory;
}

std::string layout_fault(const ModelSizes& sizes, std::int64_t accelerators, const ShapeLayout& l) {
  if (l.tp < 1 || l.pp < 1 || l.cp < 1 || l.ep < 1) return "every degree is 1 or more";
  if (accelerators % (l.tp * l.pp * l.cp) != 0)
    return fmt::format("tp x pp x cp is {}, which does not divide {} accelerators", l.tp * l.pp * l.cp, accelerators);
  if (accelerators / (l.tp * l.pp) % l.ep != 0) return fmt::format("ep {} does not divide the {} ranks of a stage", l.ep, accelerators / (l.tp * l.pp));
  if (l.tp > 8) return fmt::format("tp {} is more than a node's 8", l.tp);
  if (sizes.heads % l.tp != 0) return fmt::format("tp {} does not divide {} heads of keys and values", l.tp, sizes.heads);
  if (l.pp > sizes.layers) return fmt::format("pp {} is more than {} layers", l.pp, sizes.layers);
  if (l.ep > 1 && (sizes.experts == 0 || sizes.experts % l.ep != 0)) return fmt::format("ep {} does not divide {} experts", l.ep, sizes.experts);
  return {};
}

namespace {
bool fits_in(const ShapeMemory& memory, std::int64_t capacity) { return static_cast<double>(memory.total()) <= kUsableMemory * static_cast<double>(capacity); }

// Calls visit(layout) by pp, tp, cp, ep until it is true.
template <class F>
bool any_layout(const ModelSizes& sizes, std::int64_t accelerators, F&& visit) {
  ShapeLayout l;
  for (l.pp = 1; l.pp <= accelerators; l.pp *= 2)
    for (l.tp = 1; l.tp <= 8; l.tp *= 2)
      for (l.cp = 1; l.cp <= accelerators; l.cp *= 2)
        for (l.ep = 1; l.ep <= accelerators; l.ep *= 2)
          if (layout_fault(sizes, accelerators, l).empty() && visit(l)) return true;
  return false;
}
}  // namespace

ShapeFit fit_of(const ModelSizes& sizes, const ShapeWork& work, std::int64_t accelerators, std::int64_t capacity, const ShapeLayout& layout) {
  ShapeFit fit;
  for (const bool host : {false, true}) {
    if (host && work.mode != ShapeMode::policy) break;
    fit.plan = {layout, host, shape_memory(sizes, work, accelerators, layout, host)};
    fit.fits = fits_in(fit.plan.memory, capacity);
    if (fit.fits) break;
  }
  return fit;
}

ShapeFit first_fit(const ModelSizes& sizes, const ShapeWork& work, std::int64_t accelerators, std::int64_t capacity) {
  ShapeFit best;
  for (const bool host : {false, true}) {
    if (host && work.mode != ShapeMode::policy) break;
    best.fits = any_layout(sizes, accelerators, [&](const ShapeLayout& layout) {
      const ShapePlan plan{layout, host, shape_memory(sizes, work, accelerators, layout, host)};
      const bool fits = fits_in(plan.memory, capacity);
      if (fits || best.plan.memory.total() == 0 || plan.memory.total() < best.plan.memory.total()) best.plan = plan;
      return fits;
    });
    if (best.fits) break;
  }
  return best;
}

}  // namespace lockstep
