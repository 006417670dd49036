// The table of rotary angles: f32 [positions, rotary]. pairs: (cos, sin) of angle j at columns 2j and 2j + 1; half: all cosines,
// then all sines (kernels/rope). inv_j = fp32(theta^(-2j/rotary), scaled as the spec says in double); angle = fp32(position) * inv_j
// rounded to fp32, as transformers does; cosine and sine of that angle by our own double functions, rounded to fp32 once; then
// times fp32(factor) where that is not 1.
//   const std::vector<float> table = rope_table(4096, {.rotary = 64, .theta = 1e6, .half = true});
#pragma once
#include <cstdint>
#include <vector>

namespace lockstep {

struct RopeSpec {
  std::int64_t rotary = 0;  // columns that rotate; 0: no table
  double theta = 10000.0;
  bool half = false;  // which columns make a pair: (i, i + rotary/2), else (2i, 2i + 1)
  // How the frequencies of longer contexts are made (transformers' modeling_rope_utils.py).
  enum class Scaling { none, linear, llama3, yarn } scaling = Scaling::none;
  double factor = 1, original_positions = 0;
  double low_frequency = 1, high_frequency = 4;                // llama3
  double beta_fast = 32, beta_slow = 1, attention_factor = 1;  // yarn: the factor multiplies cosines and sines
  bool truncate = true;
  double softmax_factor = 1;  // by which attention's scale grows: DeepSeek's YaRN, whose `mscale_all_dim` asks for it; not in the table
};

std::vector<float> rope_inverse_frequencies(const RopeSpec& spec);
std::vector<float> rope_table(std::int64_t positions, const RopeSpec& spec);

}  // namespace lockstep
