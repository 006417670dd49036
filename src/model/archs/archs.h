// The list of model families: X(model_type) for each. Its maker, make_model_type(config, options), is in the file of that name in this folder.
#pragma once
#include "model/model.h"

#define LOCKSTEP_FAMILIES(X) \
  X(deepseek_v3)             \
  X(deepseek_v32)            \
  X(glm_moe_dsa)             \
  X(gpt_oss)                 \
  X(kimi_k2)                 \
  X(llama)                   \
  X(minimax_m2)              \
  X(mistral)                 \
  X(qwen2)                   \
  X(qwen3)                   \
  X(qwen3_moe)

namespace lockstep {

#define LOCKSTEP_DECLARE_FAMILY(model_type) std::unique_ptr<Model> make_##model_type(const Json& config, const ModelOptions& options);
LOCKSTEP_FAMILIES(LOCKSTEP_DECLARE_FAMILY)
#undef LOCKSTEP_DECLARE_FAMILY

}  // namespace lockstep
