#include "model/archs/registry.h"

#include <algorithm>

#include "base/error.h"
#include "model/archs/archs.h"
#include "model/config_keys.h"
#include "model/low_bit_weights.h"

namespace lockstep {

namespace {
std::vector<Family>& all_families() {
#define LOCKSTEP_FAMILY_ROW(model_type) {#model_type, make_##model_type},
  static std::vector<Family> all = {LOCKSTEP_FAMILIES(LOCKSTEP_FAMILY_ROW)};
#undef LOCKSTEP_FAMILY_ROW
  return all;
}
}  // namespace

std::span<const Family> families() { return all_families(); }

bool plant_family(Family family) {
  const bool fresh = std::none_of(families().begin(), families().end(), [&](const Family& f) { return f.model_type == family.model_type; });
  if (fresh) all_families().push_back(std::move(family));
  return fresh;
}

bool Model::has_indexer() const {
  const std::vector<Parameter>& all = manifest_.parameters();
  return std::any_of(all.begin(), all.end(), [](const Parameter& p) { return p.indexer; });
}

std::string Model::profile_refusal(const Profile& profile) const {
  if (!profile.expanded_latents) return low_bit_refusal(manifest_, profile);
  const bool latents = facts_.latent_attention;
  if (latents && facts_.select_top_k == 0) return "";
  return fmt::format("profile '{}' keeps each head's own key and value of latent attention over all keys, and a model of type {} {}; allowed is {}",
                     profile.name, facts_.model_type, latents ? "has an indexer, which selects keys that all heads share" : "has no latent attention",
                     profile.bf16_weights ? "cpu-bf16w" : "cpu-f32");
}

void Model::require_profile(const Profile& profile) const {
  if (const std::string refusal = profile_refusal(profile); !refusal.empty()) fail(ErrorCode::unsupported, "{}", refusal);
}

namespace {
// Keys of config.json that are true without being there, and what is asked of them instead; none: what they say.
struct MtpSwitch {
  const char* key;
  std::optional<bool> asked;
};

// Whether config.json says nothing of a layer of multi-token prediction.
bool without_mtp(const Json& config) {
  const auto found = config.find("num_nextn_predict_layers");
  return found == config.end() || found->is_null() || *found == 0;
}
}  // namespace

std::unique_ptr<Model> make_model(const Json& config, const ModelOptions& options) {
  const ConfigReader reader(config);
  if (options.new_mtp && without_mtp(config)) {
    Json asking = config;
    asking["num_nextn_predict_layers"] = 1;
    return make_model(asking, options);
  }
  const MtpSwitch switches[] = {{"index_share_for_mtp_iteration", options.mtp_shares_keys}, {"normed_state_for_mtp_iteration", options.mtp_normed_state}};
  for (const auto& [key, asked] : switches) {
    if (!asked || without_mtp(config) || config.value(key, true) == *asked) continue;
    Json asking = config;
    asking[key] = *asked;
    return make_model(asking, options);
  }
  const std::string type = reader.text("model_type");
  std::vector<std::string> known;
  for (const Family& family : families()) {
    if (family.model_type == type) {
      refuse_other_arithmetic(reader);
      std::unique_ptr<Model> model = family.make(config, options);
      if (options.mla_norm_eps > 0 && !model->facts().latent_attention)
        fail(ErrorCode::unsupported, "mla_norm_eps is {}, and a model of type {} has no latent norms; allowed is 0, which leaves it out", options.mla_norm_eps,
             type);
      return model;
    }
    known.push_back(family.model_type);
  }
  fail(ErrorCode::unsupported, "config.json: 'model_type' is '{}', known are {}{}", type, fmt::join(known, ", "), did_you_mean(type, known));
}

}  // namespace lockstep
