#include "model/archs/gguf_names.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace lockstep {

namespace {
constexpr std::array kArchitectures = {
    GgufArchitecture{.name = "llama", .model_type = "llama", .class_name = "LlamaForCausalLM", .paired_rows = true, .mlp_bias = true},
    GgufArchitecture{.name = "qwen2", .model_type = "qwen2", .class_name = "Qwen2ForCausalLM", .attention_bias = false},
    GgufArchitecture{.name = "qwen3", .model_type = "qwen3", .class_name = "Qwen3ForCausalLM", .head_size = true},
    GgufArchitecture{.name = "qwen3moe", .model_type = "qwen3_moe", .class_name = "Qwen3MoeForCausalLM", .head_size = true, .experts = true},
};

struct NameRow {
  std::string_view gguf, hugging_face;
  GgufRows rows = GgufRows::as_they_are;
};
constexpr std::array kTop = {
    NameRow{kGgufEmbedding, "model.embed_tokens.weight"},
    NameRow{"output_norm.weight", "model.norm.weight"},
    NameRow{kGgufHead, "lm_head.weight"},
};
// Behind "blk.N." and "model.layers.N."; which of them a model has says its family's manifest.
constexpr std::array kOfLayer = {
    NameRow{"attn_norm.weight", "input_layernorm.weight"},
    NameRow{"attn_q.weight", "self_attn.q_proj.weight", GgufRows::paired_queries},
    NameRow{"attn_k.weight", "self_attn.k_proj.weight", GgufRows::paired_keys},
    NameRow{"attn_v.weight", "self_attn.v_proj.weight"},
    NameRow{"attn_q.bias", "self_attn.q_proj.bias", GgufRows::paired_queries},
    NameRow{"attn_k.bias", "self_attn.k_proj.bias", GgufRows::paired_keys},
    NameRow{"attn_v.bias", "self_attn.v_proj.bias"},
    NameRow{"attn_q_norm.weight", "self_attn.q_norm.weight"},
    NameRow{"attn_k_norm.weight", "self_attn.k_norm.weight"},
    NameRow{"attn_output.weight", "self_attn.o_proj.weight"},
    NameRow{"ffn_norm.weight", "post_attention_layernorm.weight"},
    NameRow{"ffn_gate.weight", "mlp.gate_proj.weight"},
    NameRow{"ffn_up.weight", "mlp.up_proj.weight"},
    NameRow{"ffn_down.weight", "mlp.down_proj.weight"},
    NameRow{"ffn_gate_inp.weight", "mlp.gate.weight"},
    NameRow{"ffn_gate_exps.weight", "mlp.experts.{}.gate_proj.weight", GgufRows::experts},
    NameRow{"ffn_up_exps.weight", "mlp.experts.{}.up_proj.weight", GgufRows::experts},
    NameRow{"ffn_down_exps.weight", "mlp.experts.{}.down_proj.weight", GgufRows::experts},
};
}  // namespace

std::span<const GgufArchitecture> gguf_architectures() { return kArchitectures; }

GgufPlace gguf_place(const GgufArchitecture& architecture, std::string_view name) {
  for (const NameRow& row : kTop)
    if (row.gguf == name) return {std::string(row.hugging_face)};
  constexpr std::string_view kLayer = "blk.";
  if (!name.starts_with(kLayer)) return {};
  name.remove_prefix(kLayer.size());
  const std::string_view number = name.substr(0, std::min(name.find('.'), name.size()));
  if (number.empty() || number.size() > 6 || number.size() == name.size() || number.find_first_not_of("0123456789") != std::string_view::npos) return {};
  name.remove_prefix(number.size() + 1);
  for (const NameRow& row : kOfLayer) {
    if (row.gguf != name) continue;
    const bool paired = row.rows == GgufRows::paired_queries || row.rows == GgufRows::paired_keys;
    return {fmt::format("model.layers.{}.", number) + std::string(row.hugging_face), paired && !architecture.paired_rows ? GgufRows::as_they_are : row.rows};
  }
  return {};
}

}  // namespace lockstep
