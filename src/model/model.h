// A model family: config check, tensor manifest and forward; no hand-written backward, no cache policy, no weights.
// A family is one file in archs/ and one line in archs/registry.cpp (docs/adding-a-model.md).
//   std::unique_ptr<Model> model = make_model(config_json);
#pragma once
#include <memory>

#include "model/config_reader.h"
#include "model/context.h"
#include "model/expert_shape.h"
#include "model/rope_table.h"

namespace lockstep {

class Model {
 public:
  virtual ~Model() = default;
  virtual std::string_view family() const = 0;
  virtual std::vector<CacheShape> cache_shapes() const = 0;
  // Hidden states after the final norm, [T, hidden].
  virtual Tensor forward(Context& context) const = 0;

  const Json& config() const { return config_; }
  const Manifest& manifest() const { return manifest_; }
  ExpertShape expert_shape() const { return {static_cast<std::int64_t>(router_biases.size()), experts_a_token, expert_count}; }
  bool has_indexer() const;  // parameters that only the index loss trains
  std::int64_t vocabulary = 0, hidden = 0, layers = 0, max_positions = 0;
  RopeSpec rope;
  std::vector<std::int64_t> eos_tokens;
  ParameterId head = 0;         // unembedding [vocabulary, hidden]
  std::int64_t expert_count = 0, experts_a_token = 0;  // 0: no experts
  std::vector<ParameterId> router_biases;              // one a sparse layer
  std::int64_t attention_heads = 0;                    // query heads of a layer
  std::int64_t select_top_k = 0;                       // keys a row attends to at most; 0: dense
  std::int64_t active_size = 0;                        // weights used per token, input embedding not counted

 protected:
  explicit Model(const Json& config) : config_(config) {}
  Json config_;
  Manifest manifest_;
};

struct ModelOptions {
  double mla_norm_eps = 0;  // 0: the family's own (1e-6 for GLM, as transformers)
};

// Reads "model_type" (or "architectures") of a Hugging Face config.json. Throws invalid_argument naming the key at fault, or
// unsupported with the known families.
std::unique_ptr<Model> make_model(const Json& config, const ModelOptions& options = {});

}  // namespace lockstep
