#include "checkpoint/gguf_types.h"

#include <array>
#include <cstring>

#include "numerics/half.h"

namespace lockstep {

namespace {
using Bytes = const std::uint8_t*;

float half_at(Bytes at) {
  std::uint16_t bits;
  std::memcpy(&bits, at, 2);
  return widen_half(bits);
}

std::uint32_t word_at(Bytes at) {
  std::uint32_t word;
  std::memcpy(&word, at, 4);
  return word;
}

// Decodes block after block: `one` reads the block at its first argument into the values at its second.
template <int kBytes, int kValues, void (*one)(Bytes, float*)>
void decode_blocks(Bytes bytes, float* values, std::int64_t blocks) {
  for (std::int64_t b = 0; b < blocks; ++b) one(bytes + b * kBytes, values + b * kValues);
}

void f32(Bytes at, float* y) { std::memcpy(y, at, 4); }
void f16(Bytes at, float* y) { *y = half_at(at); }
void bf16(Bytes at, float* y) {
  std::uint16_t bits;
  std::memcpy(&bits, at, 2);
  *y = widen(Bf16{bits});
}

// 32 values a block. Bytes hold value i in their low four bits and value i + 16 in their high ones; fifth bits stand in a word, bit i of value i.
void q4_0(Bytes at, float* y) {
  const float d = half_at(at);
  Bytes q = at + 2;
  for (int i = 0; i < 16; ++i) {
    y[i] = d * static_cast<float>((q[i] & 15) - 8);
    y[i + 16] = d * static_cast<float>((q[i] >> 4) - 8);
  }
}
void q4_1(Bytes at, float* y) {
  const float d = half_at(at), m = half_at(at + 2);
  Bytes q = at + 4;
  for (int i = 0; i < 16; ++i) {
    y[i] = d * static_cast<float>(q[i] & 15) + m;
    y[i + 16] = d * static_cast<float>(q[i] >> 4) + m;
  }
}
int fifth(std::uint32_t high, int i) { return static_cast<int>((high >> i & 1u) << 4); }
void q5_0(Bytes at, float* y) {
  const float d = half_at(at);
  const std::uint32_t high = word_at(at + 2);
  Bytes q = at + 6;
  for (int i = 0; i < 16; ++i) {
    y[i] = d * static_cast<float>(((q[i] & 15) | fifth(high, i)) - 16);
    y[i + 16] = d * static_cast<float>(((q[i] >> 4) | fifth(high, i + 16)) - 16);
  }
}
void q5_1(Bytes at, float* y) {
  const float d = half_at(at), m = half_at(at + 2);
  const std::uint32_t high = word_at(at + 4);
  Bytes q = at + 8;
  for (int i = 0; i < 16; ++i) {
    y[i] = d * static_cast<float>((q[i] & 15) | fifth(high, i)) + m;
    y[i + 16] = d * static_cast<float>((q[i] >> 4) | fifth(high, i + 16)) + m;
  }
}
void q8_0(Bytes at, float* y) {
  const float d = half_at(at);
  for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>(static_cast<std::int8_t>(at[2 + i]));
}

// 256 values a block, in groups of 32 (Q6_K: 16) with scales of their own.

// Scale and minimum of group `g`, six bits each, out of twelve bytes.
struct ScaleAndMinimum {
  float scale, minimum;
};
ScaleAndMinimum six_bits(Bytes s, int g) {
  if (g < 4) return {static_cast<float>(s[g] & 63), static_cast<float>(s[g + 4] & 63)};
  return {static_cast<float>((s[g + 4] & 15) | (s[g - 4] >> 2 & 48)), static_cast<float>((s[g + 4] >> 4) | (s[g] >> 2 & 48))};
}
void q4_k(Bytes at, float* y) {
  const float d = half_at(at), least = half_at(at + 2);
  for (int g = 0; g < 8; ++g) {
    const ScaleAndMinimum of = six_bits(at + 4, g);
    const float scale = d * of.scale, minimum = least * of.minimum;
    Bytes q = at + 16 + g / 2 * 32;
    const int shift = g % 2 * 4;
    for (int i = 0; i < 32; ++i) y[g * 32 + i] = scale * static_cast<float>(q[i] >> shift & 15) - minimum;
  }
}
void q5_k(Bytes at, float* y) {
  const float d = half_at(at), least = half_at(at + 2);
  Bytes high = at + 16;
  for (int g = 0; g < 8; ++g) {
    const ScaleAndMinimum of = six_bits(at + 4, g);
    const float scale = d * of.scale, minimum = least * of.minimum;
    Bytes q = at + 48 + g / 2 * 32;
    const int shift = g % 2 * 4;
    for (int i = 0; i < 32; ++i) y[g * 32 + i] = scale * static_cast<float>((q[i] >> shift & 15) | (high[i] >> g & 1) << 4) - minimum;
  }
}
void q6_k(Bytes at, float* y) {
  const float d = half_at(at + 208);
  for (int g = 0; g < 8; ++g) {
    Bytes low = at + g / 4 * 64 + g % 2 * 32, high = at + 128 + g / 4 * 32;
    const int low_shift = g % 4 / 2 * 4, high_shift = g % 4 * 2;
    for (int part = 0; part < 2; ++part) {
      const float scale = d * static_cast<float>(static_cast<std::int8_t>(at[192 + g * 2 + part]));
      for (int i = part * 16; i < part * 16 + 16; ++i)
        y[g * 32 + i] = scale * static_cast<float>(((low[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4) - 32);
    }
  }
}

// Types without `decode` stand here for their names.
constexpr std::array kGgufTypes = {
    GgufType{0, "F32", 1, 4, decode_blocks<4, 1, f32>},
    GgufType{1, "F16", 1, 2, decode_blocks<2, 1, f16>},
    GgufType{2, "Q4_0", 32, 18, decode_blocks<18, 32, q4_0>},
    GgufType{3, "Q4_1", 32, 20, decode_blocks<20, 32, q4_1>},
    GgufType{6, "Q5_0", 32, 22, decode_blocks<22, 32, q5_0>},
    GgufType{7, "Q5_1", 32, 24, decode_blocks<24, 32, q5_1>},
    GgufType{8, "Q8_0", 32, 34, decode_blocks<34, 32, q8_0>},
    GgufType{9, "Q8_1"},
    GgufType{10, "Q2_K"},
    GgufType{11, "Q3_K"},
    GgufType{12, "Q4_K", 256, 144, decode_blocks<144, 256, q4_k>},
    GgufType{13, "Q5_K", 256, 176, decode_blocks<176, 256, q5_k>},
    GgufType{14, "Q6_K", 256, 210, decode_blocks<210, 256, q6_k>},
    GgufType{15, "Q8_K"},
    GgufType{16, "IQ2_XXS"},
    GgufType{17, "IQ2_XS"},
    GgufType{18, "IQ3_XXS"},
    GgufType{19, "IQ1_S"},
    GgufType{20, "IQ4_NL"},
    GgufType{21, "IQ3_S"},
    GgufType{22, "IQ2_S"},
    GgufType{23, "IQ4_XS"},
    GgufType{24, "I8"},
    GgufType{25, "I16"},
    GgufType{26, "I32"},
    GgufType{27, "I64"},
    GgufType{28, "F64"},
    GgufType{29, "IQ1_M"},
    GgufType{30, "BF16", 1, 2, decode_blocks<2, 1, bf16>},
    GgufType{34, "TQ1_0"},
    GgufType{35, "TQ2_0"},
    GgufType{39, "MXFP4"},
    GgufType{40, "NVFP4"},
    GgufType{41, "Q1_0"},
};
}  // namespace

const GgufType* gguf_type(std::uint32_t id) {
  for (const GgufType& type : kGgufTypes)
    if (type.id == id) return &type;
  return nullptr;
}

std::vector<const GgufType*> readable_gguf_types() {
  std::vector<const GgufType*> types;
  for (const GgufType& type : kGgufTypes)
    if (type.decode) types.push_back(&type);
  return types;
}

}  // namespace lockstep
