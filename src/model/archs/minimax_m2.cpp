// MiniMax-M2 and M2.5 (model_type minimax_m2): grouped attention with norms over all heads of q and k together and RoPE on part of a head;
// every layer has experts under a sigmoid router with a correction bias. Agrees with transformers' MiniMaxM2ForCausalLM (tests/golden).
#include "base/error.h"
#include "model/archs/archs.h"
#include "model/blocks/decoder.h"
#include "model/blocks/grouped_attention.h"
#include "model/blocks/routed_mlp.h"

namespace lockstep {

std::unique_ptr<Model> make_minimax_m2(const Json& config, const ModelOptions&) {
  DecoderTraits traits{.model_type = "minimax_m2", .max_positions = 196608};
  traits.only = {{"sliding_window", {nullptr}},   {"rope_interleave", {false}}, {"rope_interleaved", {false}}, {"use_qk_norm", {true}},
                 {"qk_norm_type", {"per_layer"}}, {"router_jitter_noise", {0}}, {"use_routing_bias", {true}},  {"shared_intermediate_size", {0}}};
  auto model = std::make_unique<DecoderModel>(config, traits);
  const ConfigReader c = model->reader();
  for (const std::int64_t kind : c.integers("attn_type_list"))
    if (kind != 1) fail(ErrorCode::unsupported, "config.json: 'attn_type_list' contains {}, allowed is 1, softmax attention", kind);
  ModelFacts& facts = model->facts_to_fill();
  GroupedAttention::Traits heads{.head_size = 128, .most_kv_heads = 8, .theta = 5e6, .partial_rotary = true, .norm_of_all_heads = true};
  heads.q_norm = "q_norm.weight";
  heads.k_norm = "k_norm.weight";
  const auto attention = GroupedAttention::read(c, heads, facts, model->norm_eps());
  RoutedMlp::Traits routed{.count_keys = {"num_local_experts", "num_experts"}, .width_key = "intermediate_size", .normalise = {}, .scaling = {}};
  routed.bias = "e_score_correction_bias";
  routed.shared = {};
  routed.expert = {.gate = "w1.weight", .up = "w3.weight", .down = "w2.weight"};
  const auto sparse = RoutedMlp::read(c, routed, facts, std::vector<bool>(static_cast<std::size_t>(facts.layers), true));
  model->build([&](Manifest& m, std::int64_t, const std::string& prefix) { return std::make_unique<GroupedAttention>(m, prefix + "self_attn.", attention); },
               [&](Manifest& m, std::int64_t layer, const std::string& prefix) {
                 return std::make_unique<RoutedMlp>(m, layer, prefix + "block_sparse_moe.", sparse, facts);
               });
  return model;
}

}  // namespace lockstep
