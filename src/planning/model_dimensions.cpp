#include "planning/model_dimensions.h"

#include <algorithm>

#include "base/choice.h"
#include "base/error.h"

namespace lockstep {
namespace {
using D = ModelDimensions;

// One part of a layer: a mixer or an MLP.
struct Part {
  std::int64_t dense = 0, experts = 0, cache = 0, width = 0, adapted = 0;
};

// Grouped queries; `norms`: what is learnt over queries and keys; a gate doubles the query projection.
Part grouped_attention(const D& d, std::int64_t norms, bool gated) {
  const std::int64_t h = d.hidden_size, q = d.num_attention_heads * d.head_dim, kv = d.num_key_value_heads * d.head_dim, queries = gated ? 2 * q : q;
  return {.dense = h * queries + 2 * h * kv + q * h + norms,
          .cache = 2 * kv,
          .width = h + queries + 2 * kv + q + h,
          .adapted = (h + queries) + 2 * (h + kv) + (q + h)};
}

Part gated_delta(const D& d) {
  const std::int64_t h = d.hidden_size, heads = d.linear_num_value_heads, out = heads * d.linear_value_head_dim,
                     mixed = 2 * d.linear_num_key_heads * d.linear_key_head_dim + out;
  return {.dense = h * mixed + h * out + 2 * h * heads + mixed * d.linear_conv_kernel_dim + 2 * heads + d.linear_value_head_dim + out * h,
          .width = h + 2 * mixed + 2 * out + 2 * heads + h,
          .adapted = (h + mixed) + (h + out) + 2 * (h + heads) + (out + h)};
}

Part mamba(const D& d) {
  const std::int64_t h = d.hidden_size, inner = d.mamba_num_heads * d.mamba_head_dim, mixed = inner + 2 * d.n_groups * d.ssm_state_size,
                     in = inner + mixed + d.mamba_num_heads;
  return {.dense = h * in + mixed * d.conv_kernel + mixed + 3 * d.mamba_num_heads + inner + inner * h,
          .width = h + in + mixed + 2 * inner + h,
          .adapted = (h + in) + (inner + h)};
}

// SwiGLU has three matrices, squared ReLU two.
Part mlp(std::int64_t hidden, std::int64_t inner, std::int64_t matrices) {
  return {.dense = matrices * hidden * inner, .width = matrices * inner + hidden, .adapted = matrices * (hidden + inner)};
}

Part routed(const D& d, std::int64_t experts, std::int64_t shared, std::int64_t matrices) {
  const std::int64_t h = d.hidden_size, inner = d.moe_intermediate_size, latent = d.moe_latent_size, in = latent > 0 ? latent : h;
  Part part = shared > 0 ? mlp(h, shared, matrices) : Part{};
  part.dense += experts * h + 2 * h * latent;  // router; the way into the latent and back
  part.experts = experts * matrices * in * inner;
  part.width += h + experts + (latent > 0 ? 2 * latent : 0) + d.num_experts_per_tok * (2 * in + matrices * inner);
  part.adapted += experts * matrices * (in + inner) + (latent > 0 ? 2 * (h + latent) : 0);
  return part;
}

LayerBlock layer(std::int64_t count, std::initializer_list<Part> parts, std::int64_t norms, bool by_heads) {
  LayerBlock block{.count = count, .dense = norms, .cache_by_heads = by_heads};
  for (const Part& p : parts) {
    block.dense += p.dense;
    block.experts += p.experts;
    block.cache += p.cache;
    block.width += p.width;
    block.adapted += p.adapted;
  }
  return block;
}

std::int64_t rest_of_layers(const D& d, std::int64_t some, const char* key) {
  if (some > d.num_hidden_layers) fail(ErrorCode::invalid_argument, "{} is {}, allowed are 0 to {}, num_hidden_layers", key, some, d.num_hidden_layers);
  return d.num_hidden_layers - some;
}

// Layers of a gated delta net, and full attention in every full_attention_interval-th; each with experts and a shared one.
std::vector<LayerBlock> qwen3_5_moe_blocks(const D& d) {
  const std::int64_t h = d.hidden_size, norms = 2 * h;
  Part moe = routed(d, d.num_experts, d.shared_expert_intermediate_size, 3);
  moe.dense += h;  // the shared expert's gate
  const std::int64_t full = d.num_hidden_layers / d.full_attention_interval;
  return {layer(d.num_hidden_layers - full, {gated_delta(d), moe}, norms, true), layer(full, {grouped_attention(d, 2 * d.head_dim, true), moe}, norms, true)};
}

// A layer is one mixer: attention, Mamba-2, or experts.
std::vector<LayerBlock> nemotron_h_blocks(const D& d) {
  const std::int64_t h = d.hidden_size, moe = rest_of_layers(d, d.attention_layers + d.mamba_layers, "attention_layers + mamba_layers");
  return {layer(d.mamba_layers, {mamba(d)}, h, true), layer(moe, {routed(d, d.n_routed_experts, d.moe_shared_expert_intermediate_size, 2)}, h, true),
          layer(d.attention_layers, {grouped_attention(d, 0, false)}, h, true)};
}

// Model types whose sizes are computed here, by formulas, since the program has no family of them (model/archs/). A further one is a row.
struct FormulaFamily {
  const char* name;
  std::vector<std::string> needed;  // beside hidden_size, num_hidden_layers, vocab_size, num_attention_heads
  std::vector<LayerBlock> (*blocks)(const D& dimensions);
};
const std::vector<FormulaFamily>& formula_families() {
  static const std::vector<FormulaFamily> rows = {
      {"qwen3_5_moe",
       {"num_key_value_heads", "head_dim", "num_experts", "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size",
        "full_attention_interval", "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim"},
       qwen3_5_moe_blocks},
      {"nemotron_h",
       {"num_key_value_heads", "head_dim", "attention_layers", "mamba_layers", "mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups", "conv_kernel",
        "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "moe_shared_expert_intermediate_size"},
       nemotron_h_blocks}};
  return rows;
}

const FormulaFamily* find_family(const std::string& model_type) {
  const auto found = std::find_if(formula_families().begin(), formula_families().end(), [&](const FormulaFamily& f) { return model_type == f.name; });
  return found == formula_families().end() ? nullptr : &*found;
}

}  // namespace

const std::vector<DimensionKey>& dimension_keys() {
#define LOCKSTEP_KEY(name) \
  { #name, &D::name }
  static const std::vector<DimensionKey> keys = {LOCKSTEP_KEY(hidden_size),
                                                 LOCKSTEP_KEY(num_hidden_layers),
                                                 LOCKSTEP_KEY(vocab_size),
                                                 LOCKSTEP_KEY(num_attention_heads),
                                                 LOCKSTEP_KEY(num_key_value_heads),
                                                 LOCKSTEP_KEY(head_dim),
                                                 LOCKSTEP_KEY(full_attention_interval),
                                                 LOCKSTEP_KEY(linear_num_key_heads),
                                                 LOCKSTEP_KEY(linear_num_value_heads),
                                                 LOCKSTEP_KEY(linear_key_head_dim),
                                                 LOCKSTEP_KEY(linear_value_head_dim),
                                                 LOCKSTEP_KEY(linear_conv_kernel_dim),
                                                 LOCKSTEP_KEY(attention_layers),
                                                 LOCKSTEP_KEY(mamba_layers),
                                                 LOCKSTEP_KEY(mamba_num_heads),
                                                 LOCKSTEP_KEY(mamba_head_dim),
                                                 LOCKSTEP_KEY(ssm_state_size),
                                                 LOCKSTEP_KEY(n_groups),
                                                 LOCKSTEP_KEY(conv_kernel),
                                                 LOCKSTEP_KEY(num_experts),
                                                 LOCKSTEP_KEY(n_routed_experts),
                                                 LOCKSTEP_KEY(num_experts_per_tok),
                                                 LOCKSTEP_KEY(moe_intermediate_size),
                                                 LOCKSTEP_KEY(shared_expert_intermediate_size),
                                                 LOCKSTEP_KEY(moe_shared_expert_intermediate_size),
                                                 LOCKSTEP_KEY(moe_latent_size),
                                                 LOCKSTEP_KEY(vision_parameters)};
#undef LOCKSTEP_KEY
  return keys;
}

std::vector<std::string> dimension_families() {
  std::vector<std::string> names;
  for (const FormulaFamily& f : formula_families()) names.emplace_back(f.name);
  return names;
}

std::vector<std::string> needed_keys(const std::string& model_type) {
  const FormulaFamily* family = find_family(model_type);
  if (!family) return {};
  std::vector<std::string> keys = {"hidden_size", "num_hidden_layers", "vocab_size", "num_attention_heads"};
  keys.insert(keys.end(), family->needed.begin(), family->needed.end());
  return keys;
}

ModelSizes model_sizes(const ModelDimensions& d) {
  const FormulaFamily* family = find_family(d.model_type);
  if (!family) fail_choice("model_type", d.model_type, dimension_families());
  const std::vector<std::string> needed = needed_keys(d.model_type);
  for (const DimensionKey& key : dimension_keys())
    if (std::find(needed.begin(), needed.end(), key.name) != needed.end() && d.*key.member < 1)
      fail(ErrorCode::invalid_argument, "{} is missing, which {} needs", key.name, d.model_type);

  const std::int64_t h = d.hidden_size;
  return {.blocks = family->blocks(d),
          .embedding = d.vocab_size * h,
          .head = d.tie_word_embeddings ? 0 : d.vocab_size * h,
          .rest = h + d.vision_parameters,
          .hidden = h,
          .vocabulary = d.vocab_size,
          .layers = d.num_hidden_layers,
          .experts = d.n_routed_experts + d.num_experts,
          .heads = d.num_key_value_heads > 0 ? d.num_key_value_heads : d.num_attention_heads};
}

}  // namespace lockstep
