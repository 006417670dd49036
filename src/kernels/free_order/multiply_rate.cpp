#include "kernels/free_order/multiply_rate.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "base/error.h"
#include "kernels/backend.h"
#include "kernels/prelude.h"
#include "numerics/isa/avx2.h"

#include "kernels/free_order/multiply_rate_loop.inc"

namespace lockstep {

std::int64_t multiply_avx2(std::int64_t steps, float* sums) { return multiply_loop<Avx2Vec, 5>(steps, sums); }
std::int64_t multiply_tile_avx2(std::int64_t steps, float* data) { return multiply_tile<Avx2Vec>(steps, data); }

double multiply_rate(InstructionSet isa, ThreadPool& pool, double seconds, MultiplyFrom from) {
  if (isa != InstructionSet::avx2 && isa != InstructionSet::avx512)
    fail(ErrorCode::unsupported, "the rate is not written for the instruction set '{}', allowed are avx2 and avx512", instruction_set_name(isa));
  const bool wide = isa == InstructionSet::avx512, registers = from == MultiplyFrom::registers;
  const std::int64_t steps = registers ? 250'000 : wide ? 1'200 : 2'400;  // a millisecond: on a busy machine a longer run would always be interrupted
  const auto multiply = registers ? wide ? multiply_avx512 : multiply_avx2 : wide ? multiply_tile_avx512 : multiply_tile_avx2;
  using Clock = std::chrono::steady_clock;
  double best = 0;
  const auto begin = Clock::now();
  do {
    std::atomic<std::int64_t> operations = 0;
    const auto start = Clock::now();
    pool.run(pool.threads(), [&](std::int64_t) {
      alignas(64) float numbers[kTileNumbers];
      for (int i = 0; i < kTileNumbers; ++i) numbers[i] = static_cast<float>(i % 160);
      operations += multiply(steps, numbers);
    });
    best = std::max(best, static_cast<double>(operations) / std::chrono::duration<double>(Clock::now() - start).count() / 1e9);
  } while (std::chrono::duration<double>(Clock::now() - begin).count() < seconds);
  return best;
}

}  // namespace lockstep
