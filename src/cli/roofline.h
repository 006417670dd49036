// Measures the limits of this machine (benchmark/roofline.h). One thread.
//   const RooflinePoint limit = measure_limits(runtime, 2, 0.5);
#pragma once
#include "benchmark/roofline.h"
#include "cli/commands.h"
#include "serving/loading.h"

namespace lockstep {

// With the instruction set of `machine`; if that is scalar, which cannot be measured, with the widest one. `seconds`: how long multiply-adds are
// timed.
RooflinePoint measure_limits(const RuntimeSettings& machine, std::int64_t threads, double seconds);

int bench_roofline(const Arguments& arguments);

}  // namespace lockstep
