// The makers of all families, for registry.cpp.
#pragma once
#include "model/model.h"

namespace lockstep {

std::unique_ptr<Model> make_glm_moe_dsa(const Json& config, const ModelOptions& options);
std::unique_ptr<Model> make_llama(const Json& config, const ModelOptions& options);
std::unique_ptr<Model> make_qwen3(const Json& config, const ModelOptions& options);

}  // namespace lockstep
