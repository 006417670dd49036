#include "host/sent_operation.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TrainingBatch batch() {
  TrainingBatch b;
  b.loss.name = "cross_entropy";
  b.data.push_back({.tokens = {1, 2, 3}, .inputs = {{"target_tokens", {.shape = {3}, .floats = {}, .integers = {2, 3, 4}, .is_float = false}}}});
  return b;
}

TEST(SentOperation, IsTheSameWithTheSameContent) {
  EXPECT_EQ(SentOperation("forward").add(batch()).difference(SentOperation("forward").add(batch()).line()), "");
  EXPECT_EQ(SentOperation("forward").add(batch()).difference(SentOperation("optim_step").line()), "optim_step before, and is forward now");
}

// Each part of a batch counts, and so does where one ends and the next begins.
TEST(SentOperation, AnyChangeIsAnotherOperation) {
  std::vector<TrainingBatch> all(8, batch());
  all[1].data[0].tokens[2] = 4;
  all[2].data[0].inputs["target_tokens"].integers[0] = 1;
  all[3].data[0].inputs["weights"] = {.shape = {1}, .floats = {0.5f}, .integers = {}};
  all[4].loss.config["x"] = 1.0;
  all[5].loss.config["x"] = true;
  all[6].data.push_back(all[6].data[0]);
  all[7].forward_only = true;
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = 0; j < all.size(); ++j)
      EXPECT_EQ(SentOperation("f").add(all[i]).difference(SentOperation("f").add(all[j]).line()), i == j ? "" : "f with other content before") << i << " " << j;
  EXPECT_NE(SentOperation("f").add("ab").add("c").line(), SentOperation("f").add("a").add("bc").line());
}

}  // namespace
}  // namespace lockstep
