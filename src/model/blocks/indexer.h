// The indexer of sparse attention: selects the keys that its layer, and later layers that share the selection, attend to. Its inputs
// are detached, so no gradient leaves it; it is trained only by the index loss.
// Keys: index_n_heads, index_head_dim, index_topk; which layers own one: indexer_types, index_topk_pattern, index_topk_freq, index_skip_topk_offset.
//   const auto indexer = Indexer::read(config, {}, facts, rotary, q_latent); indexer.owners[0];
#pragma once
#include "model/blocks/block.h"
#include "model/config_reader.h"
#include "model/model_facts.h"

namespace lockstep {

class Indexer {
 public:
  // Tensor names after the attention's prefix.
  struct Traits {
    std::string q = "indexer.wq_b.weight", k = "indexer.wk.weight", norm = "indexer.k_norm.weight", norm_bias = "indexer.k_norm.bias",
                weights = "indexer.weights_proj.weight";
    bool half = false;            // RoPE turns the halves of its part of a head, else pairs, as the attention does
    bool on_every_layer = false;  // no layer shares another's selection, and the keys that would say so are not read
  };
  struct Settings {
    std::int64_t heads = 0, size = 0, top_k = 0, rotary = 0, hidden = 0, q_latent = 0;
    std::vector<bool> owners;  // by layer; the others share the selection of the last one that owns an indexer
    Traits traits;
  };
  static Settings read(const ConfigReader& config, const Traits& traits, ModelFacts& facts, std::int64_t rotary, std::int64_t q_latent);

  Indexer(Manifest& manifest, const std::string& prefix, const Settings& settings);
  std::int64_t key_size() const { return size_; }
  // h [T, hidden] and the query's latent [T, q_latent]. A selection that is already there, of an earlier forward of these rows, stays, and only the index
  // loss is recorded; a target that is there too then has all probabilities, and is taken out.
  void forward(Context& ctx, const Tensor& h, const Tensor& q_latent, int layer, Selection& selection) const;
  // Only writes the rows' keys to the cache.
  void enter(Context& ctx, const Tensor& h, int layer) const;

 private:
  Tensor keys(Context& ctx, const Tensor& h) const;

  std::int64_t heads_, size_, top_k_, rotary_;
  ParameterId q_, k_, norm_, norm_bias_, weights_;
};

}  // namespace lockstep
