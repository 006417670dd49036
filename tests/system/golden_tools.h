// Models for the system tests: the goldens with what transformers says of them, and architectures of theirs with random weights.
// Tests only.
#pragma once
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/philox.h"
#include "checkpoint/safetensors.h"
#include "model/archs/registry.h"
#include "model/runtime.h"

namespace lockstep {

struct Golden {
  std::shared_ptr<const Model> model;
  WeightImages weights;
  std::vector<std::int32_t> tokens;
  std::map<std::string, std::vector<float>> tensors;  // logits, grad.*
};

// Weights by the rules of tools/golden_weights.py.
inline WeightImages golden_weights(const Manifest& manifest, std::uint64_t seed) {
  WeightImages images(manifest.parameters().size());
  for (const FileTensor& file : manifest.files()) {
    NamedUniform uniform(seed, file.name);
    float offset = 0, amplitude;
    if (file.name.ends_with("norm.weight")) offset = 1, amplitude = 0.3f;
    else if (file.name.ends_with(".sinks")) amplitude = 3.0f;
    else if (file.shape.size() == 1 || file.name.ends_with("_bias")) amplitude = 0.3f;
    else if (file.name == "model.embed_tokens.weight") amplitude = 1.0f;
    else amplitude = static_cast<float>(2.0 / std::sqrt(static_cast<double>(file.shape.size() == 3 ? file.shape[1] : file.columns())));
    std::vector<float> values(static_cast<std::size_t>(file.size()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = offset + uniform(i) * amplitude;
    manifest.scatter(file, values.data(), images);
  }
  return images;
}

// `name`: "glm_moe_dsa/sharing".
inline std::filesystem::path golden_folder(const std::string& name) { return std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/golden" / name; }

inline Json golden_config(const std::string& name) {
  std::ifstream file(golden_folder(name) / "config.json");
  return Json::parse(file);
}

inline Golden load_golden(const std::string& name) {
  Golden golden;
  golden.model = make_model(golden_config(name));
  const SafetensorsFile file = SafetensorsFile::open(golden_folder(name) / "golden.safetensors");
  golden.weights = golden_weights(golden.model->manifest(), std::stoull(file.metadata().at("seed")));
  for (const SafetensorsTensor& tensor : file.tensors()) {
    if (tensor.name == "tokens") {
      const std::vector<std::int64_t> ids = file.read_integers(tensor);
      golden.tokens.assign(ids.begin(), ids.end());
    } else {
      golden.tensors[tensor.name] = file.read(tensor);
    }
  }
  return golden;
}

// Small enough for the traced backend (tests/golden/FAMILY/tiny.json): sums long enough to have several leaves (K = 128), contexts of more
// than one block of gradient chains, positions beyond the original context where RoPE is scaled, 37 tokens. glm_moe_dsa's has every mechanism: an
// index-sharing group, dense and sparse layers, a selection shorter than the context. llama's is tied.
inline Json tiny_config(const std::string& family = "glm_moe_dsa") {
  const std::filesystem::path path = golden_folder(family) / "tiny.json";
  std::ifstream file(path);
  if (!file) fail(ErrorCode::not_found, "the family '{}' has no {}", family, path.string());
  return Json::parse(file);
}

// The family that tests have beside those of the program (toy_family_test.cpp); it has no golden.
inline constexpr const char* kToyFamily = "toy";

// Every family of the registry but those left out.
inline std::vector<std::string> all_families(const std::vector<std::string>& without = {}) {
  std::vector<std::string> names;
  for (const Family& family : families())
    if (std::find(without.begin(), without.end(), family.model_type) == without.end()) names.push_back(family.model_type);
  return names;
}

// "FAMILY/NAME" of every golden.
inline std::vector<std::string> all_goldens() {
  std::vector<std::string> names;
  for (const std::string& family : all_families({kToyFamily}))
    for (const auto& entry : std::filesystem::directory_iterator(golden_folder(family)))
      if (entry.is_directory()) names.push_back(family + "/" + entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

inline std::vector<std::int32_t> random_tokens(RandomSequence& draws, std::int64_t n, std::int64_t vocabulary) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(n));
  for (std::int32_t& t : tokens) t = static_cast<std::int32_t>(draws.below(static_cast<std::uint32_t>(vocabulary)));
  return tokens;
}

}  // namespace lockstep
