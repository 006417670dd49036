#include "checkpoint/model_folder.h"

#include "model/blocks/mtp_layer.h"
#include "model/kv_cache.h"
#include "numerics/profile.h"

namespace lockstep {
namespace fs = std::filesystem;

LoadedModel load_model_folder(const fs::path& path, const ModelOptions& options) {
  const std::shared_ptr<const ModelReader> reader = ModelReader::open(path, options);
  return {reader->model(), reader->masters(), reader->file_dtype(), reader->notes()};
}

ModelFolderInfo model_folder_info(const fs::path& path, const ModelOptions& options) {
  const std::shared_ptr<const ModelReader> reader = ModelReader::open(path, options);
  const Model& model = *reader->model();
  ModelFolderInfo info;
  info.path = path.string();
  info.family = model.family();
  info.parameters_total = trained_size(model.manifest());
  info.parameters_active = model.facts().active_size;
  info.layers = model.facts().layers;
  info.hidden = model.facts().hidden;
  info.vocabulary = model.facts().vocabulary;
  info.context = model.facts().max_positions;
  info.experts = model.facts().expert_count;
  info.experts_a_token = model.facts().experts_a_token;
  info.select_top_k = model.facts().select_top_k;
  info.window = model.facts().window;
  info.windowed_layers = model.facts().windowed_layers;
  info.sinks = model.facts().sinks;
  info.tensors = static_cast<std::int64_t>(model.manifest().files().size());
  info.dtype = dtype_name(reader->file_dtype());
  info.weights_sha256 = reader->weights_sha256();
  if (reader->has_mtp()) {
    info.mtp_parameters = trained_size(model.mtp()->manifest());
    info.mtp_tensors = static_cast<std::int64_t>(reader->mtp_tensors().size());
    info.draft_sha256 = reader->mtp_sha256();
  }
  for (const Profile& profile : profiles())
    if (!profile.study && model.profile_refusal(profile).empty())
      info.cache_bytes_a_token.emplace_back(profile.name, KvCache::bytes_a_position(model.cache_shapes(profile), profile));
  info.notes = reader->notes();
  info.file_format = reader->format();
  info.stored = reader->kinds();
  return info;
}

Json to_json(const ModelFolderInfo& info) {
  Json cache = Json::object();
  for (const auto& [profile, bytes] : info.cache_bytes_a_token) cache[profile] = bytes;
  Json stored = Json::array();
  Json exact = Json::object();
  for (const auto& [type, _, exact_under] : info.stored) {
    stored.push_back({{"type", type.name}, {"bits_a_weight", type.bits_a_weight}, {"tensors", type.tensors}, {"weights", type.weights}});
    exact[type.name] = exact_under;
  }
  Json json = {{"path", info.path},
               {"family", info.family},
               {"parameters", {{"total", info.parameters_total}, {"active", info.parameters_active}}},
               {"layers", info.layers},
               {"hidden", info.hidden},
               {"experts", info.experts},
               {"experts_a_token", info.experts_a_token},
               {"select_top_k", info.select_top_k},
               {"sliding_window", info.window},
               {"sliding_layers", info.windowed_layers},
               {"attention_sinks", info.sinks},
               {"vocabulary", info.vocabulary},
               {"context", info.context},
               {"tensors", info.tensors},
               {"dtype", info.dtype},
               {"format", info.file_format},
               {"stored_as", stored},
               {"exact_under", exact},
               {"cache_bytes_a_token", cache},
               {"weights_sha256", info.weights_sha256},
               {"notes", info.notes}};
  if (info.mtp_tensors > 0)
    json["multi_token_prediction"] = {{"parameters", info.mtp_parameters}, {"tensors", info.mtp_tensors}, {"draft_sha256", info.draft_sha256}};
  return json;
}

}  // namespace lockstep
