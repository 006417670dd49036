#include "checkpoint/adapter_folder.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/file.h"
#include "checkpoint/json_file.h"
#include "checkpoint/model_export.h"
#include "checkpoint/safetensors.h"

namespace lockstep {
namespace {
namespace files = std::filesystem;

constexpr const char* kTensors = "adapter_model.safetensors";

Json adapter_config(const AdapterLayout& layout, const std::string& base) {
  return {{"peft_type", "LORA"},
          {"task_type", "CAUSAL_LM"},
          {"base_model_name_or_path", base},
          {"r", layout.settings().rank},
          {"lora_alpha", layout.settings().alpha},
          {"target_modules", layout.modules()},
          {"lora_dropout", 0.0},
          {"bias", "none"},
          {"fan_in_fan_out", false},
          {"inference_mode", true},
          {"use_rslora", false},
          {"use_dora", false},
          {"modules_to_save", nullptr},
          {"rank_pattern", Json::object()},
          {"alpha_pattern", Json::object()}};
}

// Whether a field is off: absent, null, false, "none", empty.
bool asks_nothing(const Json& config, const char* name) {
  const auto found = config.find(name);
  return found == config.end() || found->is_null() || *found == false || *found == "none" || ((found->is_object() || found->is_array()) && found->empty());
}

AdapterSettings settings_of(const Json& config, const std::function<bool(const std::string&)>& has_tensor, const Manifest& model) {
  if (!config.is_object()) fail(ErrorCode::corrupt_file, "adapter_config.json is no object");
  if (const auto type = config.find("peft_type"); type != config.end() && *type != "LORA")
    fail(ErrorCode::unsupported, "peft_type is {}, allowed is LORA", type->dump().substr(0, 80));
  for (const char* name :
       {"use_dora", "use_rslora", "bias", "modules_to_save", "rank_pattern", "alpha_pattern", "fan_in_fan_out", "layers_to_transform", "target_parameters"})
    if (!asks_nothing(config, name)) fail(ErrorCode::unsupported, "{} is {}, allowed is none", name, config[name].dump().substr(0, 80));
  if (!config.contains("r") || !config["r"].is_number_integer()) fail(ErrorCode::corrupt_file, "r is missing, or no whole number");
  AdapterSettings settings;
  settings.rank = config["r"];
  settings.alpha = config.contains("lora_alpha") && config["lora_alpha"].is_number() ? config["lora_alpha"].get<double>() : static_cast<double>(settings.rank);
  // Which groups are adapted follows from the tensors.
  const auto has = [&](bool attention, bool mlp, bool unembedding) {
    const AdapterLayout one(model, {.rank = settings.rank, .alpha = settings.alpha, .attention = attention, .mlp = mlp, .unembedding = unembedding});
    return std::any_of(one.manifest().files().begin(), one.manifest().files().end(), [&](const FileTensor& t) { return has_tensor(t.name); });
  };
  settings.attention = has(true, false, false);
  settings.mlp = has(false, true, false);
  settings.unembedding = has(false, false, true);
  if (!settings.attention && !settings.mlp && !settings.unembedding) fail(ErrorCode::corrupt_file, "{} has no tensor of this model's layers", kTensors);
  return settings;
}

// "...lora_A.weight" of "...lora_B.weight", and the other way round.
std::string other_half(const std::string& name) {
  std::string other = name;
  char& half = other[other.rfind(".lora_") + 6];
  half = half == 'A' ? 'B' : 'A';
  return other;
}
}  // namespace

std::string adapter_config_text(const AdapterLayout& layout, const std::string& base) { return adapter_config(layout, base).dump(2) + "\n"; }

AdapterLayout adapter_layout_of(std::string_view config, const std::function<bool(const std::string&)>& has, const Manifest& model) {
  return with_context("reading adapter_config.json", [&] { return AdapterLayout(model, settings_of(read_json_or_null(config), has, model)); });
}

namespace {
template <class Folder>
void fill_adapter_folder(Folder&& folder, const AdapterLayout& layout, const WeightImages& images, const std::string& base) {
  write_file_atomic(folder.partial() / "adapter_config.json", adapter_config_text(layout, base));
  std::vector<SafetensorsWriter::Entry> entries;
  for (const FileTensor& tensor : layout.manifest().files()) entries.push_back({tensor.name, SafetensorsType::f32, tensor.shape});
  AtomicFile out(folder.partial() / kTensors);
  SafetensorsWriter writer([&](const void* data, std::size_t bytes) { out.write(data, bytes); }, std::move(entries));
  std::vector<float> values;
  for (const SafetensorsWriter::Entry& entry : writer.entries()) {
    const auto tensor =
        std::find_if(layout.manifest().files().begin(), layout.manifest().files().end(), [&](const FileTensor& t) { return t.name == entry.name; });
    values.resize(static_cast<std::size_t>(tensor->size()));
    layout.manifest().gather(*tensor, images, values.data());
    writer.write(values);
  }
  writer.finish();
  out.commit();
  folder.commit();
}
}  // namespace

void save_adapter_folder(const files::path& path, const AdapterLayout& layout, const WeightImages& images, const std::string& base, bool overwrite) {
  with_context(fmt::format("saving the adapter to '{}'", path.string()), [&] {
    fill_adapter_folder(AtomicFolder(path, overwrite ? AtomicFolder::Existing::replace : AtomicFolder::Existing::refuse), layout, images, base);
  });
}

void export_adapter_folder(const files::path& path, const AdapterLayout& layout, const WeightImages& images, const std::string& base, Overwrite overwrite) {
  with_context(fmt::format("saving the adapter to '{}'", path.string()), [&] { fill_adapter_folder(OutputFolder(path, overwrite), layout, images, base); });
}

LoadedAdapter load_adapter_folder(const files::path& path, const Manifest& model, const std::function<void(const AdapterLayout&)>& begins) {
  return with_context(fmt::format("reading the adapter '{}'", path.string()), [&] {
    const Json config = read_json_file(path / "adapter_config.json");
    const SafetensorsFile file = SafetensorsFile::open(path / kTensors);
    LoadedAdapter out;
    out.layout = std::make_shared<const AdapterLayout>(model, settings_of(
                                                                  config, [&](const std::string& name) { return file.find(name) != nullptr; }, model));
    const Manifest& manifest = out.layout->manifest();
    if (begins) begins(*out.layout);
    for (const Parameter& parameter : manifest.parameters()) out.images.emplace_back(static_cast<std::size_t>(parameter.size()), 0.0f);
    std::set<std::string> known;
    for (const FileTensor& tensor : manifest.files()) {
      known.insert(tensor.name);
      const SafetensorsTensor* found = file.find(tensor.name);
      if (!found) {
        // A module that the adapter does not have gets A and B of zeros: it adds nothing, and its gradient is zero too.
        if (file.find(other_half(tensor.name)) != nullptr) fail(ErrorCode::corrupt_file, "{} has no tensor {}", kTensors, quoted_name(tensor.name));
        continue;
      }
      if (found->shape != tensor.shape)
        fail(ErrorCode::corrupt_file, "tensor {} has shape {}, allowed is {}", quoted_name(tensor.name), shape_text(found->shape), shape_text(tensor.shape));
      const std::vector<float> values = file.read(*found);
      for (const float value : values)
        if (!std::isfinite(value)) fail(ErrorCode::corrupt_file, "tensor {} holds {}, allowed are finite numbers", quoted_name(tensor.name), value);
      manifest.scatter(tensor, values.data(), out.images);
    }
    for (const SafetensorsTensor& tensor : file.tensors())
      if (!known.contains(tensor.name)) fail(ErrorCode::corrupt_file, "tensor {} is of no layer that adapters of this model have", quoted_name(tensor.name));
    return out;
  });
}

}  // namespace lockstep
