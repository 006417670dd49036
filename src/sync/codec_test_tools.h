// Pairs of tensors for tests of the codec: any bits, or weights that a step of training moved a little.
#pragma once
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/tensor_file.h"
#include "sync/element.h"

namespace lockstep {

inline const std::vector<SafetensorsType>& all_types() {
  static const std::vector<SafetensorsType> types = [] {
    std::vector<SafetensorsType> all;
    for (int i = 0; i <= static_cast<int>(SafetensorsType::u64); ++i) all.push_back(static_cast<SafetensorsType>(i));
    return all;
  }();
  return types;
}

inline std::string random_bytes(std::mt19937_64& random, std::size_t bytes) {
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

// A copy in which about one in `every` elements changed: by a step or a few, by a flip of its sign, to NaN, -0, a denormal, or to any bits.
inline std::string changed_copy(std::mt19937_64& random, SafetensorsType type, const std::string& old_bytes, std::uint64_t every) {
  std::string bytes = old_bytes;
  const auto width = static_cast<std::size_t>(safetensors_type_bytes(type));
  for (std::size_t at = 0; at + width <= bytes.size(); at += width) {
    if (random() % every != 0) continue;
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, width);
    const std::uint64_t sign = std::uint64_t{1} << (8 * width - 1);
    const std::uint64_t all = sign | (sign - 1);
    switch (random() % 16) {
      case 0:
        word ^= sign;
        break;
      case 1:
        word = all;  // NaN
        break;
      case 2:
        word = sign;  // -0
        break;
      case 3:
        word = 1;  // a denormal
        break;
      case 4:
        word = random();
        break;
      case 5:
        word += random() % 1000;
        break;
      default:
        word += random() % 2 ? 1 : all;
    }
    std::memcpy(bytes.data() + at, &word, width);
  }
  return bytes;
}

// bf16 weights of about a normal distribution of this deviation, whose bits come from integers alone: the same on every machine.
inline std::string plain_bf16(std::mt19937_64& random, std::int64_t elements) {
  std::string bytes;
  for (std::int64_t i = 0; i < elements; ++i) {
    std::int64_t sum = 0;
    for (int j = 0; j < 4; ++j) sum += static_cast<std::int64_t>(random() >> 44);
    const float value = static_cast<float>(sum - (std::int64_t{1} << 21)) / 8388608.0f;
    std::uint32_t word;
    std::memcpy(&word, &value, 4);
    bytes += static_cast<char>(word >> 16);
    bytes += static_cast<char>(word >> 24);
  }
  return bytes;
}

}  // namespace lockstep
