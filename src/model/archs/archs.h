// The families: X(model_type) names one, whose maker stands in its file of this folder.
#pragma once
#include "model/model.h"

#define LOCKSTEP_FAMILIES(X) \
  X(glm_moe_dsa)             \
  X(llama)                   \
  X(qwen3)

namespace lockstep {

#define LOCKSTEP_DECLARE_FAMILY(model_type) std::unique_ptr<Model> make_##model_type(const Json& config, const ModelOptions& options);
LOCKSTEP_FAMILIES(LOCKSTEP_DECLARE_FAMILY)
#undef LOCKSTEP_DECLARE_FAMILY

}  // namespace lockstep
