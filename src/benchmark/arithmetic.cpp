#include "benchmark/arithmetic.h"

#include "kernels/free_order/multiply_rate.h"

namespace lockstep {

ArithmeticTiming time_arithmetic(const BackendOptions& machine, double seconds) {
  Backend backend(machine);
  ThreadPool& pool = backend.device().threads();
  return {pool.threads(), std::string(instruction_set_name(backend.isa())), multiply_rate(backend.isa(), pool, seconds / 2),
          multiply_rate(backend.isa(), pool, seconds / 2, MultiplyFrom::first_cache)};
}

}  // namespace lockstep
