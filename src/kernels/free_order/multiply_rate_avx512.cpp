// multiply_rate.h for AVX-512: the instruction set is switched on after all standard headers, as for the kernels (kernels/prelude.h says why).
#include "kernels/free_order/multiply_rate.h"
#include "kernels/prelude.h"
#include "numerics/isa/intrinsics.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")
#include "numerics/isa/avx512.h"

#include "kernels/free_order/multiply_rate_loop.inc"

namespace lockstep {

std::int64_t multiply_avx512(std::int64_t steps, float* sums) { return multiply_loop<Avx512Vec, 10>(steps, sums); }
std::int64_t multiply_tile_avx512(std::int64_t steps, float* data) { return multiply_tile<Avx512Vec>(steps, data); }

}  // namespace lockstep
#pragma GCC pop_options
