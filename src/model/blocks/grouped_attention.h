// Grouped-query attention with half-style RoPE. Options of a family: biases of q, k, v and o; RMSNorm of q and k, per head or over all heads; RoPE on
// a part of each head; a sliding window on all layers or some; sinks (a logit per head that joins the softmax).
// Keys: num_attention_heads, num_key_value_heads, head_dim, layer_types (which layers have the window; without one only full_attention),
// sliding_window and those of RoPE.
// Shapes: H heads, Hk key and value heads, D head size.
//   const auto attention = GroupedAttention::read(model->reader(), {}, model->facts_to_fill(), model->norm_eps());
#pragma once
#include "kernels/attention/attention.h"
#include "model/blocks/block.h"
#include "model/config_reader.h"
#include "model/model_facts.h"

namespace lockstep {

class GroupedAttention final : public AttentionBlock {
 public:
  struct Traits {
    std::int64_t head_size = 0;      // default of 'head_dim'; 0: hidden / heads
    std::int64_t most_kv_heads = 0;  // default of 'num_key_value_heads'; 0: as many as heads (also when it is null)
    std::vector<std::string> rope_types = {"default", "linear", "llama3", "yarn"};
    double theta = 10000.0;       // default of 'rope_theta'
    bool partial_rotary = false;  // 'partial_rotary_factor' or the older 'rotary_dim' says how much of a head turns; else all of it
    // Default of 'sliding_window', the keys that a row sees, where the family reads that key; null there means all.
    std::optional<std::int64_t> window = {};
    bool window_by_layer = false;    // 'layer_types' says which layers have it; left out, every second one from the first on. Else all
    bool norm_of_all_heads = false;  // q_norm and k_norm: one norm of the whole row, before it is cut into heads
    // Tensor names after the block's prefix; what is empty the family does not have.
    std::string q = "q_proj.weight", k = "k_proj.weight", v = "v_proj.weight", o = "o_proj.weight", q_norm = {}, k_norm = {};
    std::string q_bias = {}, k_bias = {}, v_bias = {}, o_bias = {}, sinks = {};
  };
  struct Settings {
    AttentionShape shape;  // with the window, where all layers have it
    std::int64_t window = 0;
    std::vector<bool> windowed;  // by layer, where not all have it
    std::int64_t hidden = 0, rotary = 0;
    float norm_eps = 1e-6f;
    Traits traits;
    // The settings of one layer: with the window if that layer has it.
    Settings of_layer(std::int64_t layer) const;
  };
  // Fills in the facts that it reads.
  static Settings read(const ConfigReader& config, const Traits& traits, ModelFacts& facts, float norm_eps);

  GroupedAttention(Manifest& manifest, const std::string& prefix, const Settings& settings);
  CacheShape cache_shape(const Profile&) const override { return {shape_.entry(), 0, shape_.kv_heads}; }
  Tensor forward(Context& ctx, const Tensor& h, int layer, Selection& selection) const override;

 private:
  AttentionShape shape_;
  std::int64_t rotary_;
  float norm_eps_;
  bool norm_of_all_heads_;
  ParameterId q_, k_, v_, o_, q_norm_ = -1, k_norm_ = -1, q_bias_ = -1, k_bias_ = -1, v_bias_ = -1, o_bias_ = -1, sinks_ = -1;
};

}  // namespace lockstep
