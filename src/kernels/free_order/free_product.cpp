#include "kernels/free_order/free_product.h"

#include "base/error.h"
#include "kernels/backend.h"
#include "kernels/prelude.h"
#include "numerics/isa/avx2.h"

#include "kernels/free_order/free_product_tiles.inc"

namespace lockstep {

void free_product_avx2(const FreeProduct& op, ThreadPool& pool) { free_product_of<Avx2Vec>(op, pool); }

void free_product(const FreeProduct& op, InstructionSet isa, ThreadPool& pool) {
  if (isa == InstructionSet::avx512) return free_product_avx512(op, pool);
  if (isa == InstructionSet::avx2) return free_product_avx2(op, pool);
  fail(ErrorCode::unsupported, "the free order is not written for the instruction set '{}', allowed are avx2 and avx512", instruction_set_name(isa));
}

}  // namespace lockstep
