// Chooses the training shape for a request, and gives the reason for it and against each other shape of the model. Pure.
//   const ShapeChoice choice = resolve_shape(catalog, {.model = "Qwen3 8B", .context = 100'000});
//   if (!choice.shape) fail(ErrorCode::not_found, "{}", choice.why);
#pragma once
#include <nlohmann/json.hpp>

#include "planning/shape_catalog.h"

namespace lockstep {

struct ShapeRequest {
  std::string model;              // any name of it
  std::int64_t context = 0;       // tokens of the longest sequence; 0: whatever the shape has
  std::int64_t lora_rank = 0;     // 0: all parameters
  bool forward_only = false;      // a reference
  std::string accelerator;        // the available one, by any name; empty: any
  std::int64_t accelerators = 0;  // how many are available; 0: as many as needed
  ShapeMode mode() const { return forward_only ? ShapeMode::reference : lora_rank > 0 ? ShapeMode::lora : ShapeMode::policy; }
};

struct RejectedShape {
  std::string id;
  std::vector<std::string> reasons;
};

struct ShapeChoice {
  std::optional<TrainingShape> shape;  // with hardware and context filled in from the request where the catalog does not know them
  std::optional<ShapeFit> fit;         // its memory; none: not known
  std::string why;                     // one sentence: why this one, or what is missing
  std::vector<RejectedShape> rejected;
  std::vector<std::string> others;  // that would do too, and are larger
};

// The shape that suffices with the fewest accelerators, then the shortest context. Errors: not_found (model, accelerator, with the nearest
// name), invalid_argument (lora_rank with forward_only, numbers below 0).
ShapeChoice resolve_shape(const ShapeCatalog& catalog, const ShapeRequest& request);

// {"id", "model", "mode", "context", "accelerator", "accelerators", "nodes", "layout", "memory", ...}; what is not known is null.
nlohmann::ordered_json shape_json(const ShapeCatalog& catalog, const TrainingShape& shape, const std::optional<ShapeFit>& fit);
nlohmann::ordered_json choice_json(const ShapeCatalog& catalog, const ShapeChoice& choice);

}  // namespace lockstep
