// Declared shared prefixes: the prompt is one sequence in the backward too. Other bits of gradients than without, near them; and like all
// others a function of the data alone.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/comparison_test_tools.h"
#include "base/error.h"
#include "train/prefix_test_tools.h"

namespace lockstep {
namespace {

// Prompts shorter and longer than a block of 64 keys; one of a group alone; undeclared ones beside; where asked for, a prompt longer than
// the 512 positions of a gradient's chain.
std::vector<TrainSequence> declared_groups(bool longer = false) {
  std::vector<TrainSequence> data = groups_of({{70, {30, 41, 5, 1}}, {20, {9, 9, 2}}, {longer ? 530 : 9, {7, 4}}, {15, {6}}}, true);
  for (const TrainSequence& d : groups_of({{9, {12, 3}}}, false, 6)) data.push_back(d);
  std::swap(data[1], data[8]);
  return data;
}

std::vector<TrainSequence> without_declaration(std::vector<TrainSequence> data) {
  for (TrainSequence& d : data) d.prefix_group = -1, d.shared_prefix = 0;
  return data;
}

class DeclaredPrefix : public ::testing::TestWithParam<const char*> {};

TEST_P(DeclaredPrefix, ForwardHasTheBitsOfWholeSequencesAndGradientsAreNear) {
  const TrainBench m(GetParam());
  const std::vector<TrainSequence> data = declared_groups(true);
  const PrefixOutcome got = run_prefixes(m, {.profile = "cpu-f32"}, data), want = run_prefixes(m, {.profile = "cpu-f32"}, without_declaration(data));
  for (std::size_t s = 0; s < data.size(); ++s) {
    EXPECT_EQ(bits_of(got.scores[0][s]), bits_of(want.scores[0][s]));
    EXPECT_EQ(bits_of(got.results[0].logprobs[s]), bits_of(want.results[0].logprobs[s]));
    EXPECT_EQ(bits_of(got.results[0].entropies[s]), bits_of(want.results[0].entropies[s]));
  }
  EXPECT_EQ(got.results[0].loss, want.results[0].loss);
  EXPECT_EQ(got.results[0].rows, want.results[0].rows);
  EXPECT_EQ(got.results[0].scored, want.results[0].scored);
  EXPECT_NE(got.hashes[0], want.hashes[0]);  // or nothing was shared
  ASSERT_EQ(got.gradients[0].size(), want.gradients[0].size());
  for (std::size_t i = 0; i < want.gradients[0].size(); ++i) {
    if (want.gradients[0][i].empty()) EXPECT_TRUE(got.gradients[0][i].empty());
    else EXPECT_LE(relative_error(got.gradients[0][i], want.gradients[0][i]), 1e-5) << m.model->manifest().parameters()[i].name;
  }
}

TEST_P(DeclaredPrefix, BitsDependOnTheDataAlone) {
  const TrainBench m(GetParam());
  const std::vector<TrainSequence> data = declared_groups();
  const PrefixOutcome want = run_prefixes(m, {}, data);
  expect_same_bits(m, run_prefixes(m, {.threads = 2}, data), want, "two threads");
  expect_same_bits(m, run_prefixes(m, {.share = true}, data), want, "equal prefixes shared too, if there were none declared");
  expect_same_bits(m, run_prefixes(m, {.micro_batch = 4}, data), want, "micro-batches of 4");
  expect_same_bits(m, run_prefixes(m, {.backend = BackendKind::deferred, .checkpoint = true}, data), want, "deferred, checkpointed");
  for (const RankLayout ranks : {RankLayout{2, 1, 1}, RankLayout{1, 3, 1}, RankLayout{1, 1, 2}})
    expect_same_bits(m, run_prefixes(m, {.ranks = ranks}, data), want, fmt::format("tp={} dp={} ep={}", ranks.tp, ranks.dp, ranks.ep));
  expect_same_bits(m, run_prefixes(m, {.isa = InstructionSet::avx2}, data), want, "avx2");
  expect_same_bits(m, run_prefixes(m, {.isa = InstructionSet::scalar}, data), want, "scalar");
  std::vector<TrainSequence> reversed(data.rbegin(), data.rend());
  for (TrainSequence& d : reversed)
    if (d.prefix_group >= 0) d.prefix_group = 100 - d.prefix_group;  // what a group is called counts nothing
  EXPECT_EQ(run_prefixes(m, {}, reversed).hashes, want.hashes) << "the other order";
}

// Of a group one sequence has two targets a row, and the other one.
TEST(DeclaredPrefixTargets, ARowMayHaveSeveral) {
  const TrainBench m(kPrefixLlama);
  std::vector<TrainSequence> data = groups_of({{70, {30, 5}}, {20, {9, 2}}}, true);
  for (std::size_t s = 0; s < data.size(); s += 2) {
    TrainSequence& d = data[s];
    const TrainSequence one = d;
    d.targets_per_row = 2;
    d.targets.clear(), d.weights.clear(), d.advantages.clear(), d.old_logprobs.clear();
    for (std::size_t i = 0; i < one.targets.size(); ++i) {
      d.targets.insert(d.targets.end(), {one.targets[i], one.targets[i] < 0 ? -1 : (one.targets[i] + 1) % 96});
      d.weights.insert(d.weights.end(), {one.weights[i], 0.5f * one.weights[i]});
      d.advantages.insert(d.advantages.end(), 2, one.advantages[i]);
      d.old_logprobs.insert(d.old_logprobs.end(), 2, one.old_logprobs[i]);
    }
  }
  const PrefixOutcome got = run_prefixes(m, {.profile = "cpu-f32"}, data), want = run_prefixes(m, {.profile = "cpu-f32"}, without_declaration(data));
  for (std::size_t s = 0; s < data.size(); ++s) EXPECT_EQ(bits_of(got.results[0].logprobs[s]), bits_of(want.results[0].logprobs[s])) << s;
  EXPECT_EQ(got.results[0].loss, want.results[0].loss);
  EXPECT_NE(got.hashes[0], want.hashes[0]);
  for (std::size_t i = 0; i < want.gradients[0].size(); ++i) {
    if (want.gradients[0][i].empty()) continue;
    EXPECT_LE(relative_error(got.gradients[0][i], want.gradients[0][i]), 1e-5) << m.model->manifest().parameters()[i].name;
  }
  data[0].targets[static_cast<std::size_t>(2 * data[0].shared_prefix - 1)] = 5;
  try {
    run_prefixes(m, {}, data);
    ADD_FAILURE() << "a second target inside the prefix is not refused";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("sequence 0: target 137 is 5, inside its shared prefix of 69"), std::string::npos) << error.what();
  }
}

// The control: a group that is cut in two has other bits, as its prompt is then two sequences.
TEST_P(DeclaredPrefix, TwoGroupsAreNotOne) {
  const TrainBench m(GetParam());
  const std::vector<TrainSequence> data = groups_of({{40, {8, 8, 8, 8}}}, true);
  std::vector<TrainSequence> cut = data;
  cut[2].prefix_group = cut[3].prefix_group = 7;
  EXPECT_NE(run_prefixes(m, {}, cut).hashes[0], run_prefixes(m, {}, data).hashes[0]);
}

INSTANTIATE_TEST_SUITE_P(Families, DeclaredPrefix, ::testing::Values(kPrefixGlm, kPrefixLlama, kPrefixQwen),
                         [](const auto& p) { return std::string(Json::parse(p.param)["model_type"].template get<std::string>()); });

void expect_refused(const std::vector<TrainSequence>& data, const std::string& part, std::int64_t micro_batch = 0, bool index_loss = false,
                    bool declared = true) {
  static const TrainBench m(kPrefixGlm);
  try {
    run_prefixes(m, {.micro_batch = micro_batch, .index_loss = index_loss, .declared = declared}, data);
    ADD_FAILURE() << "not refused: " << part;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(DeclaredPrefixErrors, EachIsOneSentence) {
  const std::vector<TrainSequence> good = groups_of({{10, {3, 4, 5}}}, true);
  auto data = good;
  data[1].tokens[4] ^= 1;
  expect_refused(data, "sequence 1: its shared prefix is not that of sequence 0");
  data = good;
  data[2].shared_prefix = 8;
  expect_refused(data, "sequence 2: its shared prefix is not that of sequence 0");
  data = good;
  data[0].targets[3] = 5;
  expect_refused(data, "sequence 0: target 3 is 5, inside its shared prefix of 9");
  data = good;
  data[1].shared_prefix = 99;
  expect_refused(data, "shared_prefix is 99, allowed is 0 to its 14 tokens");
  data = good;
  data[1].prefix_group = -1;
  expect_refused(data, "prefix_group says no group");
  expect_refused(good, "micro_batch is 2, and a group that shares its prefix in the backward has 3 sequences", 2);
  expect_refused(good, "allowed with TrainerOptions::declared_prefixes alone", 0, false, false);
  expect_refused(good, "the index loss is not made over prefixes", 0, true);
}

}  // namespace
}  // namespace lockstep
