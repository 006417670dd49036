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

double multiply_rate(InstructionSet isa, ThreadPool& pool, double seconds) {
  if (isa != InstructionSet::avx2 && isa != InstructionSet::avx512)
    fail(ErrorCode::unsupported, "the rate is not written for the instruction set '{}', allowed are avx2 and avx512", instruction_set_name(isa));
  constexpr std::int64_t kSteps = 250'000;  // a millisecond: on a busy machine a longer run would always be interrupted by the scheduler
  const auto multiply = isa == InstructionSet::avx512 ? multiply_avx512 : multiply_avx2;
  using Clock = std::chrono::steady_clock;
  double best = 0;
  const auto begin = Clock::now();
  do {
    std::atomic<std::int64_t> operations = 0;
    const auto from = Clock::now();
    pool.run(pool.threads(), [&](std::int64_t) {
      float sums[160];
      for (int i = 0; i < 160; ++i) sums[i] = static_cast<float>(i);
      operations += multiply(kSteps, sums);
    });
    best = std::max(best, static_cast<double>(operations) / std::chrono::duration<double>(Clock::now() - from).count() / 1e9);
  } while (std::chrono::duration<double>(Clock::now() - begin).count() < seconds);
  return best;
}

}  // namespace lockstep
