// Says which parameters of a model a profile holds in 4 or 8 bits (integers or a low-bit format, numerics/low_bit.h), and their bytes. Knows no kernel.
//   const WeightBytes bytes = weight_bytes(model->manifest(), profile);
#pragma once
#include "model/parameter_share.h"
#include "model/weights.h"
#include "numerics/low_bit.h"

namespace lockstep {

// Bytes of one item of a parameter whose weight_bits (model/weights.h) is not 0.
std::int64_t item_bytes(const Parameter& parameter, const Profile& profile);
// Whether this parameter's compute copy is int4; and whether it is of a format, and a file's numbers and scales of that format may be used for it
// unchanged. The latter is false under a profile that trains the parameter: its copy is always what the quantiser makes of the decoded values, as after
// every step, and the quantiser never makes the -8 of int4, nor the groups of mxfp8 whose largest number is 480 times a power of two, that files may
// hold.
bool computes_with_int4(const Parameter& parameter, const Profile& profile);
bool takes_format(const Parameter& parameter, const Profile& profile, LowBitFormat format);
// Layout of one item in a low-bit format.
LowBitShape low_bit_shape(const Parameter& parameter, const Profile& profile);
// How many neighbouring inputs, and outputs, of this parameter share a scale, counted from 0; ranks may cut it at multiples only. 1: no sharing.
// Where a profile rounds rows too, a row's numbers share scales in the same groups.
std::int64_t inputs_of_scale(const Parameter& parameter, const Profile& profile);
std::int64_t outputs_of_scale(const Parameter& parameter, const Profile& profile);
// outputs_of_scale for the bias of a linear layer, which ranks cut as the layer's outputs.
std::int64_t outputs_of_scale(const Profile& profile);
// Whether the panels of all items may be quantised as those of one matrix: no scale would have outputs of two items.
bool scales_run_on(const Parameter& parameter, const Profile& profile);
// parameter_share whose rows are dealt so that no scale has outputs on two ranks.
ParameterShare share_of_scales(const Parameter& parameter, ParameterId id, int rank, int ranks, const Profile& profile);
// Why a profile quantises nothing of a model, as one sentence: experts alone, and it has none. Empty: it does, or it quantises no weights.
std::string low_bit_refusal(const Manifest& manifest, const Profile& profile);
// Bytes of the compute copies, equal to what the memory accounts report: of all parameters, and of those in 4 or 8 bits.
struct WeightBytes {
  std::int64_t all = 0, few_bits = 0;
};
WeightBytes weight_bytes(const Manifest& manifest, const Profile& profile);

}  // namespace lockstep
