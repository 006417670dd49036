// A model: facts, manifest and forward. No weights, no cache policy, no hand-written backward.
//   std::unique_ptr<Model> model = make_model(config_json);
// Families compose blocks (model/blocks/): a family is one file in archs/ and one line in archs/archs.h (docs/adding-a-model.md).
#pragma once
#include <memory>
#include <optional>

#include "model/config_reader.h"
#include "model/context.h"
#include "model/model_facts.h"

namespace lockstep {

class MtpLayer;

class Model {
 public:
  virtual ~Model() = default;
  // The shape of each layer's cache; the profile says whether latent attention is expanded.
  virtual std::vector<CacheShape> cache_shapes(const Profile& profile) const = 0;
  // Hidden states after the final norm, [T, hidden]; of a stage of a pipeline that is not the last one those after its segments. A stage that is not the
  // first one begins with ForwardOptions::stage.
  virtual Tensor forward(Context& context) const = 0;
  // How many segments of layers forward() has (model/operations/segment.h), and in which one a layer is.
  virtual std::int64_t segments() const = 0;
  virtual std::int64_t segment_of(std::int64_t layer) const = 0;
  // Input embeddings of the batch's tokens, [T, hidden], as forward() begins with them.
  virtual Tensor embed(Context& context) const = 0;
  // The layer of multi-token prediction that config.json declares (model/blocks/mtp_layer.h); null: none. Files may lack its tensors.
  virtual const MtpLayer* mtp() const { return nullptr; }

  const ModelFacts& facts() const { return facts_; }
  std::string_view family() const { return facts_.model_type; }
  const Json& config() const { return config_; }
  const Manifest& manifest() const { return manifest_; }
  bool has_indexer() const;  // has parameters that only the index loss trains
  // Why the model cannot be computed under a profile, as one sentence; empty: it can. require_profile throws that sentence as Error unsupported.
  std::string profile_refusal(const Profile& profile) const;
  void require_profile(const Profile& profile) const;

 protected:
  explicit Model(const Json& config) : config_(config) {}
  Json config_;
  Manifest manifest_;
  ModelFacts facts_;
};

struct ModelOptions {
  double mla_norm_eps = 0;  // 0: the family's default (1e-6 for GLM, as transformers)
  bool new_mtp = false;     // a config without a layer of multi-token prediction is read as if it asked for one
  // Whether the depths of that layer share selection and keys, instead of what config.json says (index_share_for_mtp_iteration; without it they do).
  std::optional<bool> mtp_shares_keys = {};
  // Whether a depth is given the normed output of the one before, in the same way (normed_state_for_mtp_iteration; without it it is).
  std::optional<bool> mtp_normed_state = {};
};

// Reads "model_type" of a Hugging Face config.json. Throws invalid_argument naming the key at fault, or
// unsupported with the known families.
std::unique_ptr<Model> make_model(const Json& config, const ModelOptions& options = {});

}  // namespace lockstep
