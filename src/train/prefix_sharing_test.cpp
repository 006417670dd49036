// Rows of equal prefixes computed once in the forward: every bit is that of whole sequences, also of the gradients.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/error.h"
#include "train/micro_batch.h"
#include "train/prefix_test_tools.h"

namespace lockstep {
namespace {

// Counts the rows of the first operation of forwards.
class RowCounter : public OperationObserver {
 public:
  std::int64_t rows = 0;
  void begin_forward(Backend&, const Batch&) override {}
  void operation(const Operation& operation) override {
    if (operation.name == "embedding") rows += operation.output.rows;
  }
};

// Prompts shorter and longer than a block of 64 keys; no prompt, one token, sequences that are all prompt.
std::vector<TrainSequence> mixed_groups() {
  std::vector<TrainSequence> data = groups_of({{70, {30, 41, 5, 1}}, {20, {9, 9, 0}}, {0, {12}}, {1, {3, 4}}});
  data.push_back(data[1]);  // the same sequence again
  std::swap(data[0], data[5]);
  return data;
}

class PrefixSharing : public ::testing::TestWithParam<const char*> {};

TEST_P(PrefixSharing, NoBitChanges) {
  const TrainBench m(GetParam());
  const std::vector<TrainSequence> data = mixed_groups();
  for (const char* profile : {"cpu-bf16w", "cpu-f32"}) {
    RowCounter all, shared;
    const PrefixOutcome want = run_prefixes(m, {.profile = profile}, data, &all);
    expect_same_bits(m, run_prefixes(m, {.share = true, .profile = profile}, data, &shared), want, profile);
    EXPECT_LT(shared.rows, all.rows * 2 / 3);  // it was engaged
  }
  const PrefixOutcome want = run_prefixes(m, {}, data);
  expect_same_bits(m, run_prefixes(m, {.share = true, .threads = 2}, data), want, "two threads");
  expect_same_bits(m, run_prefixes(m, {.share = true, .micro_batch = 3}, data), want, "micro-batches of 3");
  expect_same_bits(m, run_prefixes(m, {.share = true, .backend = BackendKind::deferred, .checkpoint = true}, data), want, "deferred, checkpointed");
  for (const RankLayout ranks : {RankLayout{2, 1, 1}, RankLayout{1, 2, 1}, RankLayout{1, 1, 2}})
    expect_same_bits(m, run_prefixes(m, {.share = true, .ranks = ranks}, data), want, fmt::format("tp={} dp={} ep={}", ranks.tp, ranks.dp, ranks.ep));
  expect_same_bits(m, run_prefixes(m, {.share = true, .isa = InstructionSet::avx2}, data), want, "avx2");
  expect_same_bits(m, run_prefixes(m, {.share = true, .isa = InstructionSet::scalar}, data), want, "scalar");
}

TEST(PrefixSharingOfAnIndexer, NoBitOfItsLossChanges) {
  const TrainBench m(kPrefixGlm);
  const std::vector<TrainSequence> data = mixed_groups();
  const PrefixOutcome want = run_prefixes(m, {.index_loss = true}, data);
  expect_same_bits(m, run_prefixes(m, {.share = true, .index_loss = true}, data), want, "index loss");
  expect_same_bits(m, run_prefixes(m, {.share = true, .checkpoint = true, .index_loss = true}, data), want, "index loss, checkpointed");
}

// The control: one other token in one prompt ends the sharing there, and is seen in the bits behind it.
TEST_P(PrefixSharing, AnotherTokenInAPromptIsNotShared) {
  const TrainBench m(GetParam());
  const std::vector<TrainSequence> data = groups_of({{40, {8, 8, 8}}});
  std::vector<TrainSequence> changed = data;
  changed[1].tokens[17] ^= 1;
  RowCounter of_equal, of_changed;
  const PrefixOutcome equal = run_prefixes(m, {.share = true}, data, &of_equal), other = run_prefixes(m, {.share = true}, changed, &of_changed);
  expect_same_bits(m, other, run_prefixes(m, {}, changed), "the changed data, not shared");
  EXPECT_EQ(of_changed.rows - of_equal.rows, 4 * 23);  // rows 17 to 39 are its own, in each of four forwards
  EXPECT_EQ(bits_of(other.scores[0][0]), bits_of(equal.scores[0][0]));
  EXPECT_NE(bits_of(other.scores[0][1]), bits_of(equal.scores[0][1]));
  EXPECT_NE(other.hashes, equal.hashes);
}

INSTANTIATE_TEST_SUITE_P(Families, PrefixSharing, ::testing::Values(kPrefixGlm, kPrefixLlama, kPrefixQwen),
                         [](const auto& p) { return std::string(Json::parse(p.param)["model_type"].template get<std::string>()); });

// Each sequence's tokens can be read back row by row, each prefix is computed once, and no owner is missing.
RC_GTEST_PROP(PrefixPlan, RowsAreThoseOfTheSequences, ()) {
  const auto count = *rc::gen::inRange<std::size_t>(1, 9);
  std::vector<TrainSequence> data;
  std::vector<std::size_t> part;
  for (std::size_t s = 0; s < count; ++s) {
    TrainSequence d;
    d.tokens = *rc::gen::container<std::vector<std::int32_t>>(*rc::gen::inRange<std::size_t>(1, 12), rc::gen::inRange(0, 2));
    data.push_back(d);
    part.insert(part.begin(), s);
  }
  const RowPlan plan = plan_rows(data, part, 4, true);
  std::set<std::vector<std::int32_t>> prefixes;
  std::size_t rows = 0;
  for (const TrainSequence& d : data)
    for (std::size_t n = 1; n <= d.tokens.size(); ++n) prefixes.emplace(d.tokens.begin(), d.tokens.begin() + static_cast<std::ptrdiff_t>(n)), ++rows;
  const bool shares = (rows - prefixes.size()) * 16 >= rows;
  if (!shares) RC_SUCCEED("too few to share");
  RC_ASSERT(plan.pages == static_cast<std::int64_t>(prefixes.size()));
  std::map<std::int32_t, std::vector<std::int32_t>> slot;  // what each one holds
  for (std::size_t k = 0; k < plan.slices.size(); ++k) {
    const SequenceSlice& slice = plan.slices[k];
    RC_ASSERT(slice.tokens == data[plan.origins[k].sequence].tokens);
    RC_ASSERT(slice.pages.size() == slice.tokens.size());
    for (std::size_t p = 0; p < slice.pages.size(); ++p) {
      const std::vector<std::int32_t> prefix(slice.tokens.begin(), slice.tokens.begin() + static_cast<std::ptrdiff_t>(p) + 1);
      RC_ASSERT(slot.try_emplace(slice.pages[p], prefix).first->second == prefix);
      if (static_cast<std::int64_t>(p) >= slice.shared) continue;
      RC_ASSERT(plan.slices[slice.owner].pages[p] == slice.pages[p]);
    }
  }
}

// Any shapes of groups have the bits of whole sequences.
RC_GTEST_PROP(PrefixPlan, AnyGroupsHaveTheBitsOfWholeSequences, ()) {
  static const TrainBench models[] = {TrainBench(kPrefixLlama), TrainBench(kPrefixGlm)};
  const TrainBench& m = models[*rc::gen::inRange(0, 2)];
  std::vector<GroupShape> shapes;
  for (std::size_t g = *rc::gen::inRange<std::size_t>(1, 4); g > 0; --g) {
    GroupShape shape{*rc::gen::element<std::int64_t>(0, 1, 2, 13, 20), {}};
    for (std::size_t n = *rc::gen::inRange<std::size_t>(1, 4); n > 0; --n)
      shape.completions.push_back(*rc::gen::inRange<std::int64_t>(shape.prompt == 0 ? 1 : 0, 6));
    shapes.push_back(shape);
  }
  const std::vector<TrainSequence> data = groups_of(shapes, false, *rc::gen::inRange<std::uint64_t>(0, 100));
  const std::int64_t micro_batch = *rc::gen::inRange<std::int64_t>(0, 4);
  const PrefixOutcome got = run_prefixes(m, {.share = true, .micro_batch = micro_batch}, data), want = run_prefixes(m, {}, data);
  RC_ASSERT(got.hashes == want.hashes);
  RC_ASSERT(got.results[1].loss == want.results[1].loss);
  for (std::size_t s = 0; s < data.size(); ++s) RC_ASSERT(bits_of(got.results[1].logprobs[s]) == bits_of(want.results[1].logprobs[s]));
}

}  // namespace
}  // namespace lockstep
