// Adapters as PEFT keeps them: adapter_config.json and adapter_model.safetensors, in and out. Names and shapes are the layout's
// (model/adapter.h). Any thread; a folder that is being written is `PATH.partial` until it is whole.
//   save_adapter_folder("adapter", layout, images, "Qwen/Qwen3-8B"); auto [layout, images] = load_adapter_folder("adapter", model->manifest());
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
void save_adapter_folder(const std::filesystem::path& path, const AdapterLayout& layout, const WeightImages& images, const std::string& base, bool overwrite = false);

struct LoadedAdapter {
  std::shared_ptr<const AdapterLayout> layout;
  WeightImages images;
};
// Modules of a group (attention, MLP) that the folder leaves alone are zeros. Errors: not_found; corrupt_file for half a module, a surplus
// tensor, a wrong shape, a value that is no number; unsupported for what an
// adapter here cannot be (another PEFT type, DoRA, rank patterns, biases, modules that are kept whole).
// `begins` is told the layout before its numbers take memory, and may throw.
LoadedAdapter load_adapter_folder(const std::filesystem::path& path, const Manifest& model, const std::function<void(const AdapterLayout&)>& begins = {});

}  // namespace lockstep
