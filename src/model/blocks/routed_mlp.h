// Routed SwiGLU experts beside a shared one: the router's scores are sigmoids, a bias that training moves by loads joins in the choice alone.
// Keys: n_routed_experts (num_experts, num_local_experts the same), num_experts_per_tok, moe_intermediate_size, n_shared_experts, norm_topk_prob,
// routed_scaling_factor; which layers: mlp_layer_types, first_k_dense_replace.
#pragma once
#include <optional>

#include "model/blocks/mlp.h"
#include "model/model_facts.h"

namespace lockstep {

class RoutedMlp final : public FeedForwardBlock {
 public:
  // Tensors after the block's prefix. Those of an expert stand after `experts` + its number + '.'; files may instead hold all experts
  // in the two tensors after `experts`, fused_gate_up [E, 2 * width, h] and fused_down [E, h, width].
  struct Traits {
    std::string router = "gate.weight", bias = "gate.e_score_correction_bias", experts = "experts.", shared = "shared_experts.";
    std::string fused_gate_up = "gate_up_proj", fused_down = "down_proj";
    Mlp::Traits expert = {};
  };
  struct Settings {
    std::int64_t hidden = 0, width = 0, experts = 0, experts_a_token = 0, shared_experts = 1;
    bool normalise = true;
    float scaling = 1;
    std::vector<bool> sparse;  // by layer; the others have a plain MLP
    Traits traits;
  };
  // Fills in the facts that it reads.
  static Settings read(const ConfigReader& config, const Traits& traits, ModelFacts& facts);

  // `facts` learns of the bias.
  RoutedMlp(Manifest& manifest, std::int64_t layer, const std::string& prefix, const Settings& settings, ModelFacts& facts);
  Tensor forward(Context& ctx, const Tensor& h) const override;
  std::int64_t idle_size() const override { return idle_; }

 private:
  std::int64_t top_k_, idle_;
  bool normalise_;
  float scaling_;
  int sparse_layer_;  // how many sparse ones are before it
  ParameterId router_, bias_, gate_, up_, down_;
  std::optional<Mlp> shared_;
};

}  // namespace lockstep
