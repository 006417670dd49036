// Quantises the masters of this rank's rows after each step, under a profile whose weights train and are quantised (cpu-int4-qat, cpu-fp8,
// cpu-mxfp8). Uses the quantiser of numerics/low_bit.h; the bits are those of make_compute_copy (model/weights.h). A few panels at a time are on the
// host. Used by the rank's thread.
//   quantise_masters(backend, parameter, profile, master, own_rows_of_the_copy);
#pragma once
#include "model/weights.h"

namespace lockstep {

// `master`: f32, whole panels of the parameter without gaps, cut where no scale is split (share_of_scales). `copy`: u8, the same panels of the
// compute copy.
void quantise_masters(Backend& backend, const Parameter& parameter, const Profile& profile, const View& master, const View& copy);

}  // namespace lockstep
