// GLM-5, 5.1, 5.2 (model_type glm_moe_dsa): absorbed multi-head latent attention, a sparse indexer shared across layers, dense
// first layers, then routed experts beside a shared one. Agrees with transformers' GlmMoeDsaForCausalLM (tests/golden).
// Shapes: T rows, h hidden, H heads, L kv_lora_rank, R rotary.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/archs/archs.h"
#include "model/archs/rope_config.h"
#include "model/operations/add.h"
#include "model/operations/attention.h"
#include "model/operations/embedding.h"
#include "model/operations/experts.h"
#include "model/operations/index_select.h"
#include "model/operations/layer_norm.h"
#include "model/operations/linear.h"
#include "model/operations/mla_entry.h"
#include "model/operations/mla_query.h"
#include "model/operations/mla_values.h"
#include "model/operations/rms_norm.h"
#include "model/operations/rope.h"
#include "model/operations/route.h"
#include "model/operations/swiglu.h"

namespace lockstep {

namespace {

struct Layer {
  ParameterId input_norm, post_norm;
  ParameterId q_a, q_a_norm, q_b, kv_a, kv_a_norm, w_uk, w_uv, o;
  bool owns_indexer = false;
  ParameterId index_q = -1, index_k = -1, index_norm = -1, index_norm_bias = -1, index_w = -1;
  bool sparse = false;
  ParameterId gate = -1, up = -1, down = -1;  // the dense MLP, or the shared expert
  ParameterId router = -1, router_bias = -1, expert_gate = -1, expert_up = -1, expert_down = -1;
};

class GlmMoeDsa final : public Model {
 public:
  GlmMoeDsa(const Json& config, const ModelOptions& options) : Model(config) {
    read_config(ConfigReader(config_), options);
    declare();
  }
  std::string_view family() const override { return "glm_moe_dsa"; }

  std::vector<CacheShape> cache_shapes() const override {
    std::vector<CacheShape> shapes;
    for (const Layer& layer : layers_) shapes.push_back({latent_ + rotary_, layer.owns_indexer ? index_size_ : 0});
    return shapes;
  }

  Tensor forward(Context& ctx) const override {
    Tensor x = embedding(ctx, embedding_);
    // A group is a layer that owns an indexer and those that share its selection: the unit that is dropped and replayed.
    for (std::size_t begin = 0; begin < layers_.size();) {
      std::size_t end = begin + 1;
      while (end < layers_.size() && !layers_[end].owns_indexer) ++end;
      x = ctx.segment(x, [this, begin, end](Context& c, const Tensor& input) {
        Tensor h = input;
        Selection selection;
        for (std::size_t i = begin; i < end; ++i) h = layer(c, h, static_cast<int>(i), selection);
        return h;
      });
      begin = end;
    }
    return rms_norm(ctx, x, final_norm_, eps_);
  }

 private:
  Tensor layer(Context& ctx, const Tensor& x, int index, Selection& selection) const {
    const Layer& l = layers_[static_cast<std::size_t>(index)];
    const Tensor h = rms_norm(ctx, x, l.input_norm, eps_);
    const Tensor q_latent = rms_norm(ctx, linear(ctx, h, l.q_a), l.q_a_norm, norm_eps_);
    if (l.owns_indexer) selection = select(ctx, h.detached(), q_latent.detached(), l, index);
    const Tensor q = mla_query(ctx, linear(ctx, q_latent, l.q_b), l.w_uk, rotary_);
    const Tensor entry = mla_entry(ctx, linear(ctx, h, l.kv_a), l.kv_a_norm, norm_eps_, rotary_);
    const Tensor o = attention(ctx, q, entry, index, &selection, shape_);
    const Tensor after = add(ctx, x, linear(ctx, mla_values(ctx, o, l.w_uv), l.o));
    return add(ctx, after, feed_forward(ctx, rms_norm(ctx, after, l.post_norm, eps_), l));
  }

  // The indexer sees detached inputs: no gradient leaves it, and only its own loss enters it.
  Selection select(Context& ctx, const Tensor& h, const Tensor& q_latent, const Layer& l, int index) const {
    const Tensor q = rope_heads(ctx, linear(ctx, q_latent, l.index_q), index_heads_, index_size_, rotary_);
    const Tensor k = rope_heads(ctx, layer_norm(ctx, linear(ctx, h, l.index_k), l.index_norm, l.index_norm_bias, 1e-6f), 1, index_size_, rotary_);
    return index_select(ctx, q, linear(ctx, h, l.index_w), k, index, index_heads_, index_size_, select_top_k);
  }

  Tensor feed_forward(Context& ctx, const Tensor& h, const Layer& l) const {
    const Tensor dense = linear(ctx, swiglu(ctx, linear(ctx, h, l.gate), linear(ctx, h, l.up)), l.down);
    if (!l.sparse) return dense;
    const int sparse_layer = static_cast<int>(&l - layers_.data()) - dense_layers_before(&l);
    const Routing routing = route(ctx, linear(ctx, h, l.router), l.router_bias, experts_a_token, normalise_, scaling_, sparse_layer);
    return add(ctx, experts(ctx, h, routing, l.expert_gate, l.expert_up, l.expert_down), dense);
  }

  int dense_layers_before(const Layer* l) const {
    return static_cast<int>(std::count_if(layers_.data(), l, [](const Layer& x) { return !x.sparse; }));
  }

  void read_config(const ConfigReader& c, const ModelOptions& options) {
    constexpr std::int64_t kLarge = std::int64_t{1} << 24;
    vocabulary = c.integer("vocab_size", 2, kLarge);
    hidden = c.integer("hidden_size", 1, kLarge);
    layers = c.integer("num_hidden_layers", 1, 4096);
    max_positions = c.integer("max_position_embeddings", 1, std::int64_t{1} << 30);
    heads_ = attention_heads = c.integer("num_attention_heads", 1, 1024);
    q_latent_ = c.integer("q_lora_rank", 1, kLarge);
    latent_ = c.integer("kv_lora_rank", 1, kLarge);
    nope_ = c.integer("qk_nope_head_dim", 1, kLarge);
    rotary_ = c.integer("qk_rope_head_dim", 2, 65536);
    value_ = c.integer("v_head_dim", 1, kLarge);
    if (rotary_ % 2) fail(ErrorCode::invalid_argument, "config.json: 'qk_rope_head_dim' is {}, allowed are even numbers", rotary_);
    intermediate_ = c.integer("intermediate_size", 1, kLarge);
    expert_intermediate_ = c.integer("moe_intermediate_size", 1, kLarge);
    expert_count = c.integer("n_routed_experts", 1, 65536);
    // A file may lie: what its numbers make us list must stay small before any weight is looked at (GLM-5.2 has 19,968).
    if (layers * expert_count > (std::int64_t{1} << 19))
      fail(ErrorCode::invalid_argument, "config.json: 'num_hidden_layers' x 'n_routed_experts' is {}, allowed is at most {}", layers * expert_count,
           std::int64_t{1} << 19);
    experts_a_token = c.integer("num_experts_per_tok", 1, expert_count);
    shared_experts_ = c.integer("n_shared_experts", 1, 1024, 1);
    normalise_ = c.boolean("norm_topk_prob", true);
    scaling_ = static_cast<float>(c.number("routed_scaling_factor", 0, 1e6, 2.5));
    eps_ = static_cast<float>(c.number("rms_norm_eps", 1e-12, 1, 1e-5));
    norm_eps_ = static_cast<float>(options.mla_norm_eps > 0 ? options.mla_norm_eps : 1e-6);
    index_heads_ = c.integer("index_n_heads", 1, 65536);
    index_size_ = c.integer("index_head_dim", rotary_, 65536);
    select_top_k = c.integer("index_topk", 1, kLarge);
    c.only("n_group", {1});
    c.only("topk_group", {1});
    c.only("attention_bias", {false});
    c.only("tie_word_embeddings", {false});
    c.only("hidden_act", {"silu"});
    c.only("scoring_func", {"sigmoid"});
    c.only("topk_method", {"noaux_tc"});
    eos_tokens = c.integers("eos_token_id");
    rope = read_rope(c, rotary_, false, max_positions, {"default"});
    read_layer_kinds(c);
    shape_ = {heads_, 1, latent_ + rotary_, latent_, true, static_cast<float>(1.0 / std::sqrt(static_cast<double>(nope_ + rotary_)))};
  }

  void read_layer_kinds(const ConfigReader& c) {
    layers_.resize(static_cast<std::size_t>(layers));
    const std::vector<std::string> owners = c.texts("indexer_types"), kinds = c.texts("mlp_layer_types");
    const auto check = [&](const char* key, const std::vector<std::string>& list, const std::vector<std::string>& allowed) {
      if (list.empty()) return;
      if (static_cast<std::int64_t>(list.size()) != layers)
        fail(ErrorCode::invalid_argument, "config.json: '{}' has {} entries, 'num_hidden_layers' is {}", key, list.size(), layers);
      for (const std::string& item : list)
        if (std::find(allowed.begin(), allowed.end(), item) == allowed.end())
          fail(ErrorCode::invalid_argument, "config.json: '{}' contains '{}', allowed are {}{}", key, item, fmt::join(allowed, ", "),
               did_you_mean(item, allowed));
    };
    check("indexer_types", owners, {"full", "shared"});
    check("mlp_layer_types", kinds, {"dense", "sparse"});
    const std::int64_t frequency = c.integer("index_topk_freq", 1, 4096, 1), offset = c.integer("index_skip_topk_offset", 0, 4096, 2);
    const std::int64_t dense = c.integer("first_k_dense_replace", 0, 4096, kinds.empty() ? std::optional<std::int64_t>() : 0);
    std::string pattern;
    if (owners.empty() && c.has("index_topk_pattern"))
      pattern = c.raw().at("index_topk_pattern").is_string() ? c.text("index_topk_pattern") : fmt::format("{}", fmt::join(c.texts("index_topk_pattern"), ""));
    if (!pattern.empty() && (static_cast<std::int64_t>(pattern.size()) != layers || pattern.find_first_not_of("FS") != std::string::npos))
      fail(ErrorCode::invalid_argument, "config.json: 'index_topk_pattern' is '{}', allowed are {} letters F or S", pattern, layers);
    for (std::int64_t i = 0; i < layers; ++i) {
      const auto at = static_cast<std::size_t>(i);
      layers_[at].owns_indexer = !owners.empty()    ? owners[at] == "full"
                                 : !pattern.empty() ? pattern[at] == 'F'
                                                    : std::max<std::int64_t>(i - offset + 1, 0) % frequency == 0;
      layers_[at].sparse = kinds.empty() ? i >= dense : kinds[at] == "sparse";
    }
    if (!layers_[0].owns_indexer) fail(ErrorCode::invalid_argument, "config.json: the first layer shares an indexer; it must own one ('full')");
  }

  void declare() {
    Manifest& m = manifest_;
    embedding_ = m.table("model.embed_tokens.weight", vocabulary, hidden);
    active_size = vocabulary * hidden + hidden;
    for (std::int64_t i = 0; i < layers; ++i) declare_layer(layers_[static_cast<std::size_t>(i)], fmt::format("model.layers.{}.", i));
    final_norm_ = m.vector("model.norm.weight", hidden);
    head = m.matrix("lm_head.weight", vocabulary, hidden);
    m.split(ParameterSplit::columns, {embedding_});
    m.split(ParameterSplit::vocabulary, {head});
    m.adapt(AdapterKind::unembedding, {head});
  }

  void declare_layer(Layer& l, const std::string& prefix) {
    Manifest& m = manifest_;
    const std::int64_t before = m.trained_size();
    const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
    l.input_norm = m.vector(prefix + "input_layernorm.weight", hidden);
    l.q_a = m.matrix(attention + "q_a_proj.weight", q_latent_, hidden);
    l.q_a_norm = m.vector(attention + "q_a_layernorm.weight", q_latent_);
    l.q_b = m.matrix(attention + "q_b_proj.weight", heads_ * (nope_ + rotary_), q_latent_);
    l.kv_a = m.matrix(attention + "kv_a_proj_with_mqa.weight", latent_ + rotary_, hidden);
    l.kv_a_norm = m.vector(attention + "kv_a_layernorm.weight", latent_);
    // kv_b [H * (nope + v), L] is two tensors here: W_uk (outputs L, inputs nope; the transpose) and W_uv (outputs v, inputs L).
    l.w_uk = m.add({attention + "kv_b_proj.weight (keys)", ParameterLayout::packed, heads_, latent_, nope_});
    l.w_uv = m.add({attention + "kv_b_proj.weight (values)", ParameterLayout::packed, heads_, value_, latent_});
    FileTensor kv_b{attention + "kv_b_proj.weight", {heads_ * (nope_ + value_), latent_}, false, {}};
    for (std::int64_t h = 0; h < heads_; ++h) {
      kv_b.pieces.push_back({l.w_uk, h, h * (nope_ + value_), nope_, true});
      kv_b.pieces.push_back({l.w_uv, h, h * (nope_ + value_) + nope_, value_, false});
    }
    m.add_file(std::move(kv_b));
    l.o = m.matrix(attention + "o_proj.weight", hidden, heads_ * value_);
    if (l.owns_indexer) {
      l.index_q = m.matrix(attention + "indexer.wq_b.weight", index_heads_ * index_size_, q_latent_, true);
      l.index_k = m.matrix(attention + "indexer.wk.weight", index_size_, hidden, true);
      l.index_norm = m.vector(attention + "indexer.k_norm.weight", index_size_, true);
      l.index_norm_bias = m.vector(attention + "indexer.k_norm.bias", index_size_, true);
      l.index_w = m.matrix(attention + "indexer.weights_proj.weight", index_heads_, hidden, true);
    }
    l.post_norm = m.vector(prefix + "post_attention_layernorm.weight", hidden);
    const std::string feed = l.sparse ? mlp + "shared_experts." : mlp;
    const std::int64_t width = l.sparse ? expert_intermediate_ * shared_experts_ : intermediate_;
    std::int64_t idle = 0;  // weights of experts that a token does not use
    if (l.sparse) {
      l.router = m.matrix(mlp + "gate.weight", expert_count, hidden);
      m.keep_exact(l.router);
      l.router_bias = m.untrained_vector(mlp + "gate.e_score_correction_bias", expert_count);
      router_biases.push_back(l.router_bias);
      const auto expert = [&](const char* part) { return [=](std::int64_t e) { return fmt::format("{}experts.{}.{}_proj.weight", mlp, e, part); }; };
      l.expert_gate = m.matrices(mlp + "experts.gate", expert_count, expert_intermediate_, hidden, expert("gate"));
      l.expert_up = m.matrices(mlp + "experts.up", expert_count, expert_intermediate_, hidden, expert("up"));
      l.expert_down = m.matrices(mlp + "experts.down", expert_count, hidden, expert_intermediate_, expert("down"));
      idle = (expert_count - experts_a_token) * 3 * hidden * expert_intermediate_;
    }
    l.gate = m.matrix(feed + "gate_proj.weight", width, hidden);
    l.up = m.matrix(feed + "up_proj.weight", width, hidden);
    l.down = m.matrix(feed + "down_proj.weight", hidden, width);
    m.split(ParameterSplit::outputs, {l.q_b, l.gate, l.up});
    m.split(ParameterSplit::inputs, {l.o, l.down});
    m.split(ParameterSplit::heads, {l.w_uk, l.w_uv});
    if (l.sparse) m.split(ParameterSplit::experts, {l.expert_gate, l.expert_up, l.expert_down});
    m.adapt(AdapterKind::attention, {l.q_a, l.q_b, l.kv_a, l.w_uk, l.w_uv, l.o});
    m.adapt(AdapterKind::mlp, {l.gate, l.up, l.down});
    if (l.sparse) m.adapt(AdapterKind::mlp, {l.expert_gate, l.expert_up, l.expert_down});
    active_size += m.trained_size() - before - idle;
  }

  std::vector<Layer> layers_;
  ParameterId embedding_ = 0, final_norm_ = 0;
  std::int64_t heads_ = 0, q_latent_ = 0, latent_ = 0, nope_ = 0, rotary_ = 0, value_ = 0, intermediate_ = 0, expert_intermediate_ = 0, shared_experts_ = 1;
  std::int64_t index_heads_ = 0, index_size_ = 0;
  bool normalise_ = true;
  float scaling_ = 1, eps_ = 1e-5f, norm_eps_ = 1e-6f;
  AttentionShape shape_;
};

}  // namespace

std::unique_ptr<Model> make_glm_moe_dsa(const Json& config, const ModelOptions& options) {
  return std::make_unique<GlmMoeDsa>(config, options);
}

}  // namespace lockstep
