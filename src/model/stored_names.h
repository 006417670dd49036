// Names of the file tensors that hold a low-bit matrix, from its name in the manifest (model/manifest.h): `model.layers.0.mlp.up_proj.weight` is
// stored in `model.layers.0.mlp.up_proj.weight_packed` and its neighbours.
// - INT4 (compressed-tensors, `pack-quantized`): weight_packed, weight_scale, weight_shape
// - MXFP4 (gpt-oss), all experts in one tensor: gate_up_proj_blocks, gate_up_proj_scales
// - FP8 (blocks of 128 x 128): the matrix itself, and weight_scale_inv
//   Int4Names("model.layers.0.mlp.up_proj.weight").scales == "model.layers.0.mlp.up_proj.weight_scale";
#pragma once
#include <string>
#include <vector>

namespace lockstep {

struct Int4Names {
  std::string numbers, scales, shape;
  explicit Int4Names(const std::string& matrix) : numbers(matrix + "_packed"), scales(matrix + "_scale"), shape(matrix + "_shape") {}
};

struct Mxfp4Names {
  std::string blocks, scales;
  explicit Mxfp4Names(const std::string& experts) : blocks(experts + "_blocks"), scales(experts + "_scales") {}
};

// What gpt-oss' own folders say of tensors that are not in MXFP4 (`modules_to_not_convert`): of layers any number.
inline std::vector<std::string> mxfp4_unconverted() { return {"model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"}; }

inline std::string block_scales_of(const std::string& matrix) { return matrix + "_scale_inv"; }

}  // namespace lockstep
