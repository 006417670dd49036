// Any bytes as an adapter's folder, as PEFT keeps them: an Error, or an adapter whose tensors are all there and finite. The input is
// adapter_config.json, a byte 0xff, and adapter_model.safetensors.
// sources: src/checkpoint/adapter_folder.cpp src/checkpoint/json_file.cpp src/checkpoint/safetensors.cpp src/checkpoint/safetensors_header.cpp
// sources: src/model/adapter_layout.cpp src/model/manifest.cpp src/numerics/isa/panel_rows.cpp
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>

#include "base/error.h"
#include "checkpoint/adapter_folder.h"

using namespace lockstep;

namespace {
Manifest tiny_manifest() {
  Manifest m;
  const ParameterId q = m.matrix("model.layers.0.self_attn.q_proj.weight", 4, 3), up = m.matrix("model.layers.0.mlp.up_proj.weight", 5, 3);
  const ParameterId head = m.matrix("lm_head.weight", 6, 3);
  m.adapt(AdapterKind::attention, {q});
  m.adapt(AdapterKind::mlp, {up});
  m.adapt(AdapterKind::unembedding, {head});
  return m;
}
void write(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Manifest manifest = tiny_manifest();
  static const std::filesystem::path folder = [] {
    const auto path = std::filesystem::temp_directory_path() / ("lockstep-adapter-fuzz-" + std::to_string(getpid()));
    std::filesystem::create_directories(path);
    static const struct Remove {
      std::filesystem::path path;
      ~Remove() { std::filesystem::remove_all(path); }
    } remove{path};
    return path;
  }();
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const std::size_t cut = std::min(all.find('\xff'), all.size());
  write(folder / "adapter_config.json", all.substr(0, cut));
  write(folder / "adapter_model.safetensors", all.substr(std::min(cut + 1, all.size())));
  try {
    const LoadedAdapter loaded = load_adapter_folder(folder, manifest);
    if (loaded.layout->settings().rank < 1 || loaded.images.size() != loaded.layout->manifest().parameters().size()) __builtin_trap();
    for (const auto& image : loaded.images)
      for (const float value : image)
        if (!std::isfinite(value)) __builtin_trap();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::corrupt_file && e.code() != ErrorCode::unsupported && e.code() != ErrorCode::invalid_argument) __builtin_trap();
  }
  return 0;
}
