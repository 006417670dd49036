#include "benchmark/arithmetic.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "benchmark/gemm.h"

namespace lockstep {
namespace {

// A ceiling: no product is faster. (A loop whose work was computed once for two, or left out, would say several times the truth; one that went
// by memory, less than a product. Both have been seen.)
TEST(Arithmetic, IsTheCeilingOfAProduct) {
  const BackendOptions machine{.threads = 1};
  double rate = 0, tile = 0, product = 0;
  // Each is the best of several, in turns; more turns where other programs had the processor in those of the loop alone.
  for (int i = 0; i < 5 || (i < 60 && rate <= product); ++i) {
    const ArithmeticTiming t = time_arithmetic(machine, 0.02);
    rate = std::max(rate, t.gigaflops), tile = std::max(tile, t.tile_gigaflops);
    product = std::max(product, time_gemm({.rows = 64, .outputs = 1536, .inputs = 576}, machine, {.seconds = 0.02}, 0).gigaflops);
  }
  EXPECT_GT(rate, product);
  EXPECT_LT(tile, 1.05 * rate);                                      // the clock's error
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // these make products slow, and registers not
  EXPECT_LT(rate, 4 * product);
  EXPECT_GT(tile, 0.4 * rate);
#endif
}

TEST(Arithmetic, RefusesASetThatItIsNotWrittenFor) { EXPECT_THROW(time_arithmetic({.isa = InstructionSet::scalar}, 0.001), Error); }

}  // namespace
}  // namespace lockstep
