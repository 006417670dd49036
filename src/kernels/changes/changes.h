// Sets elements of a tensor to given bits: how a snapshot's changes reach a compute copy in device memory (model/weight_changes.h).
//   to[offset[i]] = bits[i] for every i
// Exact stores and no arithmetic: any bit pattern, a NaN too, arrives as it is. Offsets count elements of the tensor's memory from its first one on,
// whatever its layout (panels, a table, bytes of quantised panels); no offset occurs twice, so that no order of stores matters. Offsets are not
// checked here: whoever makes them does.
#pragma once
#include "kernels/rows.h"

namespace lockstep {

struct SetElements {
  View to;            // f32, bf16 or u8, without gaps
  View offset, bits;  // i32, of one size; of bf16 and u8 the lowest bits count
};

}  // namespace lockstep
