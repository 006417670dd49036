// Mixture of SwiGLU experts, with a shared expert where the family has one. Router scores are sigmoids or a softmax. A correction bias, which
// training moves by expert loads, affects the choice only; groups of experts may be excluded first (kernels/router/router.h). Options of a family:
// biases of the router and of the experts' layers, the clamped SwiGLU (kernels/elementwise/elementwise.h).
// Keys: the number of experts and their width (by the family's names), num_experts_per_tok, n_shared_experts, norm_topk_prob, routed_scaling_factor,
// n_group, topk_group, swiglu_alpha and swiglu_limit; which layers have experts is the family's.
//   const auto sparse = RoutedMlp::read(c, {}, facts, std::vector<bool>(4, true));
#pragma once
#include <optional>

#include "model/blocks/mlp.h"
#include "model/model_facts.h"
#include "model/operations/experts.h"

namespace lockstep {

class RoutedMlp final : public FeedForwardBlock {
 public:
  struct Traits {
    // Keys of the number of experts (if a config has several, they must agree) and of their width.
    std::vector<std::string> count_keys = {"n_routed_experts", "num_experts", "num_local_experts"};
    std::string width_key = "moe_intermediate_size";
    bool softmax = false;                      // scores; else sigmoids
    std::optional<bool> normalise = true;      // default of 'norm_topk_prob'; none: always, and the key is not read
    std::optional<double> scaling = 2.5;       // default of 'routed_scaling_factor'; none: the key is not read
    std::int64_t groups = 0, kept_groups = 0;  // defaults of 'n_group' and 'topk_group'; 0: only 1 is allowed
    // Tensor names after the block's prefix; what is empty the family does not have. Those of an expert follow `experts` + its number + '.';
    // files may instead hold all experts in two tensors after `experts`: fused_gate_up [E, 2 * width, h] and fused_down [E, h, width].
    std::string router = "gate.weight", bias = "gate.e_score_correction_bias", experts = "experts.", shared = "shared_experts.";
    std::string fused_gate_up = "gate_up_proj", fused_down = "down_proj";
    Mlp::Traits expert = {};
    std::string router_bias = {};  // of the linear layer that makes the logits; trained
    // Files hold all experts in two tensors as transformers' gpt_oss does, and no others: fused_gate_up [E, h, 2 * width], gate and up columns in
    // turn, and fused_down [E, width, h], beside the biases [E, 2 * width], in turn too, and [E, h]. The SwiGLU is the clamped one.
    bool interleaved = false;
    std::string gate_up_bias = "gate_up_proj_bias", down_bias = "down_proj_bias";
  };
  struct Settings {
    std::int64_t hidden = 0, width = 0, experts = 0, shared_experts = 1;
    RouterRule rule;
    SwigluRule swiglu;
    std::vector<bool> sparse;  // by layer; the others have a plain MLP
    Traits traits;
  };
  // Fills in the facts that it reads. `sparse` says which layers have experts.
  static Settings read(const ConfigReader& config, const Traits& traits, ModelFacts& facts, std::vector<bool> sparse);
  // The layers that `mlp_layer_types` or `first_k_dense_replace` make sparse; `dense_layers`: default of the latter (none: one key must be there).
  static std::vector<bool> sparse_after_dense(const ConfigReader& config, std::int64_t layers, std::optional<std::int64_t> dense_layers = {});

  // Adds the router's correction bias to `facts`.
  RoutedMlp(Manifest& manifest, std::int64_t layer, const std::string& prefix, const Settings& settings, ModelFacts& facts);
  Tensor forward(Context& ctx, const Tensor& h) const override;
  RowCost row_cost() const override;
  std::int64_t idle_size() const override { return idle_; }

 private:
  // Declare the experts' tensors, three of each expert or few of all (Traits::interleaved); `experts` is their prefix.
  void declare_each(Manifest& m, const std::string& experts, const Settings& s);
  void declare_interleaved(Manifest& m, const std::string& experts, const Settings& s);

  RouterRule rule_;
  RowCost routed_;  // without the shared expert
  std::int64_t idle_;
  int sparse_layer_;  // number of MoE layers before it
  ParameterId router_bias_ = -1;
  ExpertWeights weights_;
  std::optional<Mlp> shared_;
};

// The block of a layer in a family some of whose layers have experts: those where `sparse` says so, else a plain MLP, both after `prefix`.
std::unique_ptr<FeedForwardBlock> experts_or_mlp(Manifest& manifest, std::int64_t layer, const std::string& prefix, const RoutedMlp::Settings& sparse,
                                                 const Mlp::Settings& dense, ModelFacts& facts);

}  // namespace lockstep
