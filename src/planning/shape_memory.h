// Estimates a training shape's memory per device, by use: one formula (docs/training-shapes.md) of the model's sizes, the mode,
// the context, the precision and the layout; and finds the first layout that fits.
//   const ShapeFit fit = first_fit(sizes, work, 8, 180e9); if (fit.fits) use(fit.plan);
// An estimate for other hardware; for this machine `lockstep plan` counts to the byte. Pure functions.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "planning/model_sizes.h"

namespace lockstep {

enum class ShapeMode { policy, lora, reference };  // all parameters, an adapter over frozen ones, forward alone

// Degrees; fully sharded data parallelism (FSDP) is over what is left, replicas of context parallelism included. Experts are shared out by
// ep first, then as the rest.
struct ShapeLayout {
  std::int64_t tp = 1, pp = 1, cp = 1, ep = 1;
  std::string text() const;  // "tp1 pp1 cp4 ep1"
};

enum class ShapePart { weights, gradients, optimizer, adapters, activations, cache, head, workspace };
inline constexpr int kShapeParts = 8;
inline constexpr std::array<std::string_view, kShapeParts> kShapePartNames = {"weights",     "gradients", "optimizer", "adapters",
                                                                              "activations", "cache",     "head",      "workspace"};

struct ShapeMemory {
  std::array<std::int64_t, kShapeParts> bytes{};  // a device
  std::int64_t host = 0;                          // masters and moments, a device, when they are on the host
  std::int64_t total() const;
};

struct ShapeWork {
  ShapeMode mode = ShapeMode::policy;
  std::int64_t context = 0, lora_rank = 16;  // tokens; the rank in mode lora
  bool int4_experts = false;                 // frozen experts in int4
};

struct ShapePlan {
  ShapeLayout layout;
  bool optimizer_on_host = false;
  ShapeMemory memory;
};

// The part of a device's memory that a plan may fill; the rest is for the driver and fragmentation.
inline constexpr double kUsableMemory = 0.92;

ShapeMemory shape_memory(const ModelSizes& sizes, const ShapeWork& work, std::int64_t accelerators, const ShapeLayout& layout, bool optimizer_on_host);
// Why a layout is impossible: degrees that do not divide what they split; "" when it is possible.
std::string layout_fault(const ModelSizes& sizes, std::int64_t accelerators, const ShapeLayout& layout);
// The layout with the fewest cuts that fits `capacity` bytes per device: without the host before with it, then by pp, tp, cp, ep. When none
// does: the one that takes least (and `fits` is false).
struct ShapeFit {
  bool fits = false;
  ShapePlan plan;
};
ShapeFit first_fit(const ModelSizes& sizes, const ShapeWork& work, std::int64_t accelerators, std::int64_t capacity);
// The same with the layout given.
ShapeFit fit_of(const ModelSizes& sizes, const ShapeWork& work, std::int64_t accelerators, std::int64_t capacity, const ShapeLayout& layout);

}  // namespace lockstep
