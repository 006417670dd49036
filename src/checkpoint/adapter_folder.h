// Reads and writes PEFT adapter folders: adapter_config.json and adapter_model.safetensors.
//   save_adapter_folder("adapter", layout, images, "Qwen/Qwen3-8B"); const LoadedAdapter again = load_adapter_folder("adapter", model->manifest());
// Names and shapes are the layout's (model/adapter.h). A folder is written as `PATH.partial` and renamed when complete. Any thread.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "model/adapter.h"

namespace lockstep {

// `images` packed, fp32, by ParameterId of the layout's manifest. `base`: what adapter_config.json calls the model. Errors:
// already_exists without overwrite; io.
void save_adapter_folder(const std::filesystem::path& path, const AdapterLayout& layout, const WeightImages& images, const std::string& base,
                         bool overwrite = false);

// Text of adapter_config.json; and back, given which tensors there are. Errors of the latter: those of load_adapter_folder.
std::string adapter_config_text(const AdapterLayout& layout, const std::string& base);
AdapterLayout adapter_layout_of(std::string_view config, const std::function<bool(const std::string& tensor)>& has, const Manifest& model);

struct LoadedAdapter {
  std::shared_ptr<const AdapterLayout> layout;
  WeightImages images;
};
// Modules of a group (attention, MLP) that the folder does not adapt are zeros. Errors: not_found; corrupt_file for a module with only A or
// B, a surplus tensor, a wrong shape, NaN or infinity; unsupported for adapters that do not exist here (another PEFT type, DoRA, rank
// patterns, biases, modules_to_save). `begins` is called with the layout before its values are allocated, and may throw.
LoadedAdapter load_adapter_folder(const std::filesystem::path& path, const Manifest& model, const std::function<void(const AdapterLayout&)>& begins = {});

}  // namespace lockstep
