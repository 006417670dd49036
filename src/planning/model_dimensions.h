// The sizes of a model by the keys of its config.json, and what follows from them without opening it: parameters, cache, the widths of
// activations, a block of equal layers at a time. Families are those of published shapes, also ones that this program does not run.
// Multi-token prediction and correction biases are left out. Plain values.
//   const ModelSizes sizes = model_sizes(dimensions);  // sizes.parameters()
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// Members are named as the keys; 0: absent.
struct ModelDimensions {
  std::string model_type;
  std::int64_t hidden_size = 0, num_hidden_layers = 0, vocab_size = 0, intermediate_size = 0;
  bool tie_word_embeddings = false;
  std::int64_t num_attention_heads = 0, num_key_value_heads = 0, head_dim = 0, full_attention_interval = 0;
  std::int64_t q_lora_rank = 0, kv_lora_rank = 0, qk_nope_head_dim = 0, qk_rope_head_dim = 0, v_head_dim = 0;
  std::int64_t index_n_heads = 0, index_head_dim = 0, index_topk = 0, index_layers = 0;  // layers that own an indexer
  std::int64_t linear_num_key_heads = 0, linear_num_value_heads = 0, linear_key_head_dim = 0, linear_value_head_dim = 0, linear_conv_kernel_dim = 0;
  std::int64_t attention_layers = 0, mamba_layers = 0, mamba_num_heads = 0, mamba_head_dim = 0, ssm_state_size = 0, n_groups = 0, conv_kernel = 0;
  std::int64_t first_k_dense_replace = 0, num_experts = 0, n_routed_experts = 0, num_experts_per_tok = 0, moe_intermediate_size = 0;
  std::int64_t n_shared_experts = 0, shared_expert_intermediate_size = 0, moe_shared_expert_intermediate_size = 0, moe_latent_size = 0;
  std::int64_t vision_parameters = 0;  // of a tower beside the text model: a count, no key of config.json
};

// Numbers a key names, in the order above; all but the vision tower's are 1 or more where they are needed.
struct DimensionKey {
  const char* name;
  std::int64_t ModelDimensions::*member;
};
const std::vector<DimensionKey>& dimension_keys();
std::vector<std::string> dimension_families();
// The keys that a family needs; empty for a family that is not known.
std::vector<std::string> needed_keys(const std::string& model_type);

// Layers that are alike. Counts are numbers, not bytes; widths are of one token.
struct LayerBlock {
  std::int64_t count = 0;             // layers
  std::int64_t dense = 0, experts = 0;  // parameters of one: of routed experts, and all others
  std::int64_t cache = 0;             // values a token in the cache
  bool cache_by_heads = false;        // key and value heads, which tensor parallelism shares; else one latent for all heads
  std::int64_t width = 0;             // values a token that the operations of one layer give
  std::int64_t adapted = 0;           // inputs + outputs of every matrix that an adapter stands on, experts' included
};

struct ModelSizes {
  std::vector<LayerBlock> blocks;
  std::int64_t embedding = 0, head = 0, rest = 0;  // head 0: tied; rest: final norm, vision tower
  std::int64_t hidden = 0, vocabulary = 0, layers = 0, experts = 0;
  std::int64_t heads = 0;  // what tensor parallelism must divide: key and value heads, or the heads of MLA
  std::int64_t parameters() const;
};

// Error invalid_argument: an unknown family, a key that is missing, layers that do not add up.
ModelSizes model_sizes(const ModelDimensions& dimensions);

}  // namespace lockstep
