// Grouped-query attention with half-style RoPE, where wanted with a norm of each head of q and k before it.
// Keys: num_attention_heads, num_key_value_heads, head_dim, layer_types (full_attention alone) and those of RoPE.
// Shapes: H heads, Hk key and value heads, D head size.
#pragma once
#include "kernels/attention/attention.h"
#include "model/blocks/block.h"
#include "model/config_reader.h"
#include "model/model_facts.h"

namespace lockstep {

class GroupedAttention final : public AttentionBlock {
 public:
  struct Traits {
    std::int64_t head_size = 0;      // where 'head_dim' is left out; 0: hidden / heads
    std::int64_t most_kv_heads = 0;  // where 'num_key_value_heads' is left out; 0: as many as heads (as where it is null)
    std::vector<std::string> rope_types = {"default", "linear", "llama3", "yarn"};
    // Tensors after the block's prefix; without norms of heads the last two are empty.
    std::string q = "q_proj.weight", k = "k_proj.weight", v = "v_proj.weight", o = "o_proj.weight", q_norm = {}, k_norm = {};
  };
  struct Settings {
    AttentionShape shape;
    std::int64_t hidden = 0;
    float norm_eps = 1e-6f;
    Traits traits;
  };
  // Fills in the facts that it reads.
  static Settings read(const ConfigReader& config, const Traits& traits, ModelFacts& facts, float norm_eps);

  GroupedAttention(Manifest& manifest, const std::string& prefix, const Settings& settings);
  CacheShape cache_shape() const override { return {shape_.entry(), 0, shape_.kv_heads}; }
  Tensor forward(Context& ctx, const Tensor& h, int layer, Selection& selection) const override;

 private:
  AttentionShape shape_;
  float norm_eps_;
  ParameterId q_, k_, v_, o_, q_norm_ = -1, k_norm_ = -1;
};

}  // namespace lockstep
