// Sizes of models whose families only the catalog of shapes knows, by formulas over the keys of config.json. All other models are counted from their
// own tensors (planning/model_sizes.h). Plain values.
//   const ModelSizes sizes = model_sizes(dimensions);  // sizes.parameters()
#pragma once
#include <string>
#include <vector>

#include "planning/model_sizes.h"

namespace lockstep {

// Members are named as the keys; 0: absent.
struct ModelDimensions {
  std::string model_type;
  std::int64_t hidden_size = 0, num_hidden_layers = 0, vocab_size = 0;
  bool tie_word_embeddings = false;
  std::int64_t num_attention_heads = 0, num_key_value_heads = 0, head_dim = 0, full_attention_interval = 0;
  std::int64_t linear_num_key_heads = 0, linear_num_value_heads = 0, linear_key_head_dim = 0, linear_value_head_dim = 0, linear_conv_kernel_dim = 0;
  std::int64_t attention_layers = 0, mamba_layers = 0, mamba_num_heads = 0, mamba_head_dim = 0, ssm_state_size = 0, n_groups = 0, conv_kernel = 0;
  std::int64_t num_experts = 0, n_routed_experts = 0, num_experts_per_tok = 0, moe_intermediate_size = 0;
  std::int64_t shared_expert_intermediate_size = 0, moe_shared_expert_intermediate_size = 0, moe_latent_size = 0;
  std::int64_t vision_parameters = 0;  // of a tower beside the text model: a count, no key of config.json
};

// The keys and the members that they set, in the order above. Needed ones are 1 or more, except for the vision tower's.
struct DimensionKey {
  const char* name;
  std::int64_t ModelDimensions::*member;
};
const std::vector<DimensionKey>& dimension_keys();
std::vector<std::string> dimension_families();
// The keys that a family needs; empty for a family that is not known.
std::vector<std::string> needed_keys(const std::string& model_type);

// Error invalid_argument: an unknown family, a key that is missing, layers that do not add up.
ModelSizes model_sizes(const ModelDimensions& dimensions);

}  // namespace lockstep
