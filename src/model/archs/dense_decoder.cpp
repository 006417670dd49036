// Llama 3.x (model_type llama) and Qwen3 (qwen3): grouped-query attention with half-style RoPE and a SwiGLU MLP. Qwen3 also norms
// each head of q and k before RoPE. Agrees with transformers' LlamaForCausalLM and Qwen3ForCausalLM (tests/golden).
// Shapes: T rows, h hidden, H heads, Hk key and value heads, D head size.
#include <cmath>

#include "base/error.h"
#include "model/archs/archs.h"
#include "model/archs/rope_config.h"
#include "model/operations/add.h"
#include "model/operations/attention.h"
#include "model/operations/embedding.h"
#include "model/operations/gqa_entry.h"
#include "model/operations/linear.h"
#include "model/operations/rms_norm.h"
#include "model/operations/rope.h"
#include "model/operations/swiglu.h"

namespace lockstep {

namespace {

struct Layer {
  ParameterId input_norm, q, k, v, q_norm = -1, k_norm = -1, o, post_norm, gate, up, down;
};

class DenseDecoder final : public Model {
 public:
  DenseDecoder(const Json& config, bool head_norms, std::string_view family) : Model(config), family_(family), head_norms_(head_norms) {
    read_config(ConfigReader(config_));
    declare();
  }
  std::string_view family() const override { return family_; }

  std::vector<CacheShape> cache_shapes() const override {
    return std::vector<CacheShape>(layers_.size(), CacheShape{shape_.entry(), 0, shape_.kv_heads});
  }

  Tensor forward(Context& ctx) const override {
    Tensor x = embedding(ctx, embedding_);
    for (std::size_t i = 0; i < layers_.size(); ++i)
      x = ctx.segment(x, [this, i](Context& c, const Tensor& input) { return layer(c, input, static_cast<int>(i)); });
    return rms_norm(ctx, x, final_norm_, eps_);
  }

 private:
  Tensor layer(Context& ctx, const Tensor& x, int index) const {
    const Layer& l = layers_[static_cast<std::size_t>(index)];
    const Tensor h = rms_norm(ctx, x, l.input_norm, eps_);
    Tensor q = linear(ctx, h, l.q), k = linear(ctx, h, l.k);
    if (head_norms_) {
      q = rms_norm_heads(ctx, q, l.q_norm, eps_);
      k = rms_norm_heads(ctx, k, l.k_norm, eps_);
    }
    q = rope_heads(ctx, q, shape_.heads, shape_.key, rope.rotary);
    const Tensor entry = gqa_entry(ctx, k, linear(ctx, h, l.v), shape_);
    const Tensor after = add(ctx, x, linear(ctx, attention(ctx, q, entry, index, nullptr, shape_), l.o));
    const Tensor m = rms_norm(ctx, after, l.post_norm, eps_);
    return add(ctx, after, linear(ctx, swiglu(ctx, linear(ctx, m, l.gate), linear(ctx, m, l.up)), l.down));
  }

  void read_config(const ConfigReader& c) {
    constexpr std::int64_t kLarge = std::int64_t{1} << 24;
    vocabulary = c.integer("vocab_size", 2, kLarge);
    hidden = c.integer("hidden_size", 1, kLarge);
    layers = c.integer("num_hidden_layers", 1, 4096);
    max_positions = c.integer("max_position_embeddings", 1, std::int64_t{1} << 30, head_norms_ ? 32768 : 2048);
    intermediate_ = c.integer("intermediate_size", 1, kLarge);
    shape_.heads = attention_heads = c.integer("num_attention_heads", 1, 1024);
    // transformers: as many as heads where it is null; where Qwen3's is left out, 32.
    const bool left_out = !c.raw().contains("num_key_value_heads");
    shape_.kv_heads = c.integer("num_key_value_heads", 1, shape_.heads, head_norms_ && left_out ? std::min<std::int64_t>(32, shape_.heads) : shape_.heads);
    if (shape_.heads % shape_.kv_heads)
      fail(ErrorCode::invalid_argument, "config.json: 'num_key_value_heads' is {}, allowed are divisors of 'num_attention_heads', {}", shape_.kv_heads,
           shape_.heads);
    if (!c.has("head_dim") && !head_norms_ && hidden % shape_.heads)
      fail(ErrorCode::invalid_argument, "config.json: 'head_dim' is missing, and 'hidden_size' {} is no multiple of 'num_attention_heads' {}", hidden,
           shape_.heads);
    const std::int64_t head_size = c.integer("head_dim", 2, 65536, head_norms_ ? 128 : hidden / shape_.heads);
    // What the numbers of a file make us count must fit in 64 bits before any weight is looked at.
    if (shape_.heads * head_size > kLarge)
      fail(ErrorCode::invalid_argument, "config.json: 'num_attention_heads' x 'head_dim' is {}, allowed is at most {}", shape_.heads * head_size, kLarge);
    if (head_size % 2) fail(ErrorCode::invalid_argument, "config.json: 'head_dim' is {}, allowed are even numbers", head_size);
    shape_.key = shape_.value = head_size;
    shape_.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_size)));
    eps_ = static_cast<float>(c.number("rms_norm_eps", 1e-12, 1, 1e-6));
    tied_ = c.boolean("tie_word_embeddings", false);
    c.only("attention_bias", {false});
    c.only("hidden_act", {"silu"});
    for (const std::string& kind : c.texts("layer_types"))
      if (kind != "full_attention") fail(ErrorCode::unsupported, "config.json: 'layer_types' contains '{}', allowed is full_attention", kind);
    eos_tokens = c.integers("eos_token_id");
    rope = read_rope(c, head_size, true, max_positions, {"default", "linear", "llama3", "yarn"});
  }

  void declare() {
    Manifest& m = manifest_;
    const std::int64_t q_size = shape_.heads * shape_.key, kv_size = shape_.kv_heads * shape_.key;
    const std::string table = "model.embed_tokens.weight";
    embedding_ = tied_ ? m.tied_table(table, vocabulary, hidden) : m.table(table, vocabulary, hidden);
    layers_.resize(static_cast<std::size_t>(layers));
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      Layer& l = layers_[i];
      const std::string prefix = fmt::format("model.layers.{}.", i), attention = prefix + "self_attn.", mlp = prefix + "mlp.";
      l.input_norm = m.vector(prefix + "input_layernorm.weight", hidden);
      l.q = m.matrix(attention + "q_proj.weight", q_size, hidden);
      l.k = m.matrix(attention + "k_proj.weight", kv_size, hidden);
      l.v = m.matrix(attention + "v_proj.weight", kv_size, hidden);
      if (head_norms_) {
        l.q_norm = m.vector(attention + "q_norm.weight", shape_.key);
        l.k_norm = m.vector(attention + "k_norm.weight", shape_.key);
      }
      l.o = m.matrix(attention + "o_proj.weight", hidden, q_size);
      l.post_norm = m.vector(prefix + "post_attention_layernorm.weight", hidden);
      l.gate = m.matrix(mlp + "gate_proj.weight", intermediate_, hidden);
      l.up = m.matrix(mlp + "up_proj.weight", intermediate_, hidden);
      l.down = m.matrix(mlp + "down_proj.weight", hidden, intermediate_);
      m.split(ParameterSplit::outputs, {l.q, l.k, l.v, l.gate, l.up});
      m.split(ParameterSplit::inputs, {l.o, l.down});
      m.adapt(AdapterKind::attention, {l.q, l.k, l.v, l.o});
      m.adapt(AdapterKind::mlp, {l.gate, l.up, l.down});
    }
    final_norm_ = m.vector("model.norm.weight", hidden);
    head = tied_ ? embedding_ : m.matrix("lm_head.weight", vocabulary, hidden);
    if (tied_) m.add_alias("lm_head.weight", table);
    if (!tied_) m.split(ParameterSplit::columns, {embedding_});
    m.split(ParameterSplit::vocabulary, {head});
    m.adapt(AdapterKind::unembedding, {head});
    active_size = m.trained_size() - (tied_ ? 0 : vocabulary * hidden);
  }

  std::string_view family_;
  bool head_norms_, tied_ = false;
  std::vector<Layer> layers_;
  ParameterId embedding_ = 0, final_norm_ = 0;
  std::int64_t intermediate_ = 0;
  float eps_ = 1e-6f;
  AttentionShape shape_;
};

}  // namespace

std::unique_ptr<Model> make_llama(const Json& config, const ModelOptions&) { return std::make_unique<DenseDecoder>(config, false, "llama"); }
std::unique_ptr<Model> make_qwen3(const Json& config, const ModelOptions&) { return std::make_unique<DenseDecoder>(config, true, "qwen3"); }

}  // namespace lockstep
