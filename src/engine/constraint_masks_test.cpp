// Masks behind tokens that were not said: each stands behind the one before, and one that the constraint throws at leaves them as they were.
#include "engine/constraint_masks.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace lockstep {
namespace {

// After n tokens it allows token n alone, in the second word too; from `most` on it writes, then throws.
class StepByStep final : public TokenConstraint {
 public:
  explicit StepByStep(std::int64_t most) : most_(most) {}
  void allowed(std::span<std::uint32_t> words) override {
    for (const std::uint32_t word : words) EXPECT_EQ(word, 0u);
    words[0] = std::uint32_t{1} << said_;
    words[1] = 1;
    if (said_ >= most_) throw std::runtime_error("no further");
  }
  void accept(std::int32_t) override { ++said_; }
  void truncate(std::int64_t count) override { said_ = count; }
  std::int64_t said() const { return said_; }

 private:
  std::int64_t most_, said_ = 0;
};

TEST(ConstraintMasks, OneThatThrowsLeavesThoseBefore) {
  const auto constraint = std::make_shared<StepByStep>(3);
  Sequence s;
  s.sampling.constraint = constraint;
  const std::vector<std::uint32_t> three{1, 1, 2, 1, 4, 1};
  {
    MasksAhead masks(s, 40);
    EXPECT_TRUE(masks.allows(0));
    EXPECT_TRUE(masks.accept(0));
    EXPECT_TRUE(masks.accept(1));
    EXPECT_EQ(s.mask, three);
    EXPECT_FALSE(masks.accept(2));
    EXPECT_EQ(s.mask, three);
    EXPECT_TRUE(masks.allows(2));
    EXPECT_FALSE(masks.allows(3));
  }
  EXPECT_EQ(constraint->said(), 0);
  EXPECT_EQ(s.mask, three);
  // The next step asks for nothing that is known, and for zeroed words behind it.
  MasksAhead again(s, 40);
  EXPECT_EQ(s.mask, (std::vector<std::uint32_t>{1, 1}));
  EXPECT_TRUE(again.accept(0));
  EXPECT_EQ(s.mask, (std::vector<std::uint32_t>{1, 1, 2, 1}));
}

}  // namespace
}  // namespace lockstep
