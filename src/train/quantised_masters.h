// The compute copy of masters under a profile whose weights train and are quantised (cpu-int4-qat, cpu-fp8, cpu-mxfp8): after each step, the masters of
// this rank's rows through the one quantiser (numerics/low_bit.h). The bits are those of make_compute_copy (model/weights.h).
//   quantise_masters(backend, parameter, profile, master, own_rows_of_the_copy);
// Some panels are on the host at a time. Used by the rank's thread.
#pragma once
#include "model/weights.h"

namespace lockstep {

// `master`: f32, whole panels of the parameter, without gaps, that begin and end with a scale (share_of_scales). `copy`: u8, the same panels of the compute copy.
void quantise_masters(Backend& backend, const Parameter& parameter, const Profile& profile, const View& master, const View& copy);

}  // namespace lockstep
