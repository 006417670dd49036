// The tensor types of GGUF (llama.cpp's quantised blocks): their sizes, and decoding to fp32.
//   const GgufType* type = gguf_type(12); type->decode(bytes, values, blocks);  // Q4_K
// Decoding does what the Python package `gguf` does, one rounding a product and a sum, so both give the same bits. Pure functions.
// Source of the layouts: https://github.com/ggml-org/llama.cpp, ggml/src/ggml-common.h, and gguf-py/gguf/quants.py.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct GgufType {
  std::uint32_t id = 0;  // in files
  std::string_view name;
  std::int64_t block_values = 1, block_bytes = 0;  // a block of values and its bytes; rows are whole blocks
  // `blocks` blocks at `bytes` to blocks * block_values values. Null: known by name, and not read.
  void (*decode)(const std::uint8_t* bytes, float* values, std::int64_t blocks) = nullptr;
  double bits_a_weight() const { return 8.0 * static_cast<double>(block_bytes) / static_cast<double>(block_values); }
};

// Null: no such type.
const GgufType* gguf_type(std::uint32_t id);
std::vector<const GgufType*> readable_gguf_types();  // in the order of their ids

}  // namespace lockstep
