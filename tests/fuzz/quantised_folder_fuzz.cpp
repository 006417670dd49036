// Any bytes as a folder of quantised weights: an Error, or tensors whose numbers are all finite. The input is `quantization_config` of config.json, a
// byte 0xff, and model.safetensors.
// sources: src/checkpoint/stored_tensor.cpp src/checkpoint/stored_form.cpp src/checkpoint/stored_e4m3.cpp
// sources: src/checkpoint/model_files.cpp src/checkpoint/safetensors.cpp src/checkpoint/safetensors_header.cpp
// sources: src/checkpoint/gguf_*.cpp src/model/archs/gguf_names.cpp src/checkpoint/json_file.cpp src/model/manifest.cpp src/model/low_bit_weights.cpp
// sources: src/model/quantisation_config.cpp src/model/config_reader.cpp src/model/config_key_log.cpp src/numerics/low_bit.cpp src/numerics/mxfp4.cpp
// sources: src/numerics/isa/panel_rows.cpp src/numerics/quantised.cpp src/numerics/profile.cpp src/text/*.cpp src/text/tokenizer/*.cpp
#include <cmath>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/stored_e4m3.h"
#include "model/quantisation_config.h"
#include "numerics/int4_words.h"

using namespace lockstep;

namespace {
// A matrix alone, a vector, two experts that a file may hold in one tensor, and two that it holds transposed in one.
const Manifest& tiny_manifest() {
  static const Manifest manifest = [] {
    Manifest m;
    m.matrix("up.weight", 5, 36);
    m.vector("norm.weight", 3);
    const auto name = [](const char* part) { return [part](std::int64_t e) { return "experts." + std::to_string(e) + part; }; };
    const ParameterId gate = m.matrices("gate", 2, 70, 33, name(".gate.weight")), up = m.matrices("up", 2, 70, 33, name(".up.weight"));
    m.fuse("experts.gate_up", {gate, up});
    const ParameterId down = m.add({"down", ParameterLayout::packed, 2, 5, 32});
    FileTensor transposed{"experts.down_proj", {2, 32, 5}, false, {}};
    for (std::int64_t e = 0; e < 2; ++e) transposed.pieces.push_back({down, e, e * 32, 32, true, 0, 1, "experts." + std::to_string(e) + ".down_proj"});
    m.add_file(std::move(transposed));
    m.split(ParameterSplit::experts, {gate, up, down});
    return m;
  }();
  return manifest;
}

// Whatever is wrong is the folder's fault.
template <class F>
void try_to(F&& work) {
  try {
    work();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::corrupt_file && e.code() != ErrorCode::unsupported && e.code() != ErrorCode::invalid_argument) __builtin_trap();
  }
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const std::size_t cut = std::min(bytes.find('\xff'), bytes.size());
  try_to([&] {
    const Json config = Json::parse(bytes.substr(0, cut), nullptr, false);
    if (config.is_discarded()) return;
    const Json whole = {{"quantization_config", config}};
    check_quantisation(ConfigReader(whole));
  });
  if (cut == bytes.size()) return 0;
  try_to([&] {
    std::vector<std::unique_ptr<const TensorFile>> opened;
    opened.push_back(std::make_unique<SafetensorsFile>(SafetensorsFile::from_bytes(bytes.substr(cut + 1), "fuzz")));
    const ModelFiles files(std::move(opened));
    std::set<std::string> used;
    for (const FileTensor& file : tiny_manifest().files())
      try_to([&] {
        const auto stored = StoredTensor::find(files, tiny_manifest(), file, used);
        if (!stored) return;
        for (const Profile& profile : profiles()) (void)stored->is_rounded(tiny_manifest(), profile);
        std::vector<float> values(static_cast<std::size_t>(file.size()));
        stored->read(0, file.rows(), values.data());
        for (const float v : values)
          if (!std::isfinite(v)) __builtin_trap();
        std::vector<float> last(static_cast<std::size_t>(file.columns()));
        stored->read(file.rows() - 1, 1, last.data());
        for (std::size_t k = 0; k < last.size(); ++k)
          if (float_bits(last[k]) != float_bits(values[values.size() - last.size() + k])) __builtin_trap();
        if (stored->as() == StoredAs::mxfp4) {  // two outputs of the second expert, as its blocks have them
          const std::int64_t inputs = file.shape[1], outputs = file.shape[2];
          std::vector<float> rows(static_cast<std::size_t>(2 * inputs));
          stored->read_outputs(1, 1, 3, 2, rows.data());
          for (std::int64_t i = 0; i < 2 * inputs; ++i)
            if (float_bits(rows[static_cast<std::size_t>(i)]) !=
                float_bits(values[static_cast<std::size_t>((inputs + i % inputs) * outputs + 1 + 3 * (i / inputs))]))
              __builtin_trap();
          std::vector<std::uint8_t> blocks, scales;
          stored->read_mxfp4_bytes(blocks, scales);
          if (blocks.size() != 16 * scales.size()) __builtin_trap();
        }
        for (const Piece& piece : file.pieces) {
          std::vector<std::uint8_t> codes(static_cast<std::size_t>(piece.rows * file.columns())), exponents;
          std::vector<float> of_blocks;
          if (stored->form().keeps_blocks(file, tiny_manifest().parameter(piece.parameter)))
            read_blocks(*stored, piece.row_begin, piece.rows, codes.data(), of_blocks);
          if (stored->form().keeps_groups(file, tiny_manifest().parameter(piece.parameter)))
            read_groups(*stored, piece.row_begin, piece.rows, codes, exponents);
        }
        if (!stored->holds_int4()) return;
        std::vector<std::uint32_t> words(static_cast<std::size_t>(file.rows() * int4_words(file.columns())));
        std::vector<Bf16> scales(static_cast<std::size_t>(file.rows() * QuantisedShape{file.rows(), file.columns(), 4}.groups()));
        stored->read_int4(0, file.rows(), words.data(), scales.data());
      });
  });
  return 0;
}
