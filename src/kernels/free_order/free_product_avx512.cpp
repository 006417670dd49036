// free_product.h for AVX-512: the instruction set is switched on after all standard headers, as for the kernels (kernels/prelude.h says why).
#include "kernels/free_order/free_product.h"
#include "kernels/prelude.h"
#include "numerics/isa/intrinsics.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")
#include "numerics/isa/avx512.h"

#include "kernels/free_order/free_product_tiles.inc"

namespace lockstep {

void free_product_avx512(const FreeProduct& op, ThreadPool& pool) { free_product_of<Avx512Vec>(op, pool); }

}  // namespace lockstep
#pragma GCC pop_options
