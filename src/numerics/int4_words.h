// INT4 weights as files hold them (compressed-tensors, `pack-quantized`), and as kernels read them (numerics/quantised.h): the same integers and
// scales in another order, so that nothing is rounded on the way.
//   A file has, row by row, words of 32 bits with eight numbers each, number i in bits 4 i to 4 i + 3 as q + 8 (q from -8 to 7), and a
//   scale a group of 32 inputs. Bits beyond a row's last input are 0 in files, and q = 0 in panels.
// Pure functions, any thread.
//   words_to_panels(words, scales, {.outputs = 128, .inputs = 576, .bits = 4}, bytes);
#pragma once
#include <cstdint>

#include "numerics/quantised.h"

namespace lockstep {

constexpr std::int64_t int4_words(std::int64_t inputs) { return (inputs + 7) / 8; }  // of a row

// `words` [outputs][int4_words(inputs)], `scales` [outputs][groups] -> all panels of the shape; outputs beyond the last are zeros.
void words_to_panels(const std::uint32_t* words, const Bf16* scales, const QuantisedShape& shape, std::uint8_t* bytes);
void panels_to_words(const std::uint8_t* bytes, const QuantisedShape& shape, std::uint32_t* words, Bf16* scales);

}  // namespace lockstep
