// The random weights of tools/golden_weights.py, regenerated here: goldens commit no weights and rest on this.
#include <gtest/gtest.h>

#include "model/weights.h"
#include "numerics/element.h"

namespace lockstep {
namespace {

TEST(GoldenWeights, NamedUniformGivesThePythonBits) {
  // golden_weights.py 1 model.embed_tokens.weight 2 3 (offset 0, amplitude 1)
  const std::uint32_t bits[] = {0x3f2337d8, 0x3c81c080, 0xbec5d588, 0x3e29e828, 0xbe53d018, 0xbe3f27d8};
  NamedUniform uniform(1, "model.embed_tokens.weight");
  for (std::uint64_t i = 0; i < 6; ++i) EXPECT_EQ(float_bits(uniform(i)), bits[i]) << i;
  for (std::uint64_t i = 6; i-- > 0;) EXPECT_EQ(float_bits(uniform(i)), bits[i]) << "backwards " << i;
}

TEST(GoldenWeights, SeedAndNameBothCount) {
  EXPECT_NE(NamedUniform(1, "a")(0), NamedUniform(2, "a")(0));
  EXPECT_NE(NamedUniform(1, "a")(0), NamedUniform(1 + (std::uint64_t{1} << 32), "a")(0));
  EXPECT_NE(NamedUniform(1, "a")(0), NamedUniform(1, "b")(0));
}

}  // namespace
}  // namespace lockstep
