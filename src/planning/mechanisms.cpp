#include "planning/mechanisms.h"

#include "base/error.h"
#include "planning/memory_plan.h"

namespace lockstep {

Mechanisms mechanisms_of(const RuntimeSettings& settings) {
  try {
    const std::shared_ptr<const Model> model = planned_model(settings);
    return {.indexer = model->has_indexer(), .router_bias = !model->facts().router_biases.empty()};
  } catch (const Error&) {
    return {};
  }
}

}  // namespace lockstep
