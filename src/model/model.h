// A model: its facts, its tensors and its forward; no hand-written backward, no cache policy, no weights. Families make theirs of blocks
// (model/blocks/): a family is one file in archs/ and one line in archs/registry.cpp (docs/adding-a-model.md).
//   std::unique_ptr<Model> model = make_model(config_json);
#pragma once
#include <memory>

#include "model/config_reader.h"
#include "model/context.h"
#include "model/model_facts.h"

namespace lockstep {

class Model {
 public:
  virtual ~Model() = default;
  virtual std::vector<CacheShape> cache_shapes() const = 0;
  // Hidden states after the final norm, [T, hidden].
  virtual Tensor forward(Context& context) const = 0;

  const ModelFacts& facts() const { return facts_; }
  std::string_view family() const { return facts_.model_type; }
  const Json& config() const { return config_; }
  const Manifest& manifest() const { return manifest_; }
  bool has_indexer() const;  // parameters that only the index loss trains

 protected:
  explicit Model(const Json& config) : config_(config) {}
  Json config_;
  Manifest manifest_;
  ModelFacts facts_;
};

struct ModelOptions {
  double mla_norm_eps = 0;  // 0: the family's own (1e-6 for GLM, as transformers)
};

// Reads "model_type" of a Hugging Face config.json. Throws invalid_argument naming the key at fault, or
// unsupported with the known families.
std::unique_ptr<Model> make_model(const Json& config, const ModelOptions& options = {});

}  // namespace lockstep
