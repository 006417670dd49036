// An adapter that is trained over ranks has the bits of one rank: log-probabilities, losses, gradients, norms, masters, moments, over several steps, alone
// and in passes that several adapters share.
#include <gtest/gtest.h>

#include "base/error.h"
#include "model/adapter_test_tools.h"
#include "numerics/low_bit.h"
#include "parallel/some_ranks_test_tools.h"
#include "train/adapter_trainer.h"
#include "train/state_test_tools.h"
#include "train/train_test_tools.h"

namespace lockstep {
namespace {

struct RankedCase {
  RankLayout ranks;
  std::string profile = "cpu-f32";
  BackendKind backend = BackendKind::cpu;
  bool checkpoint = false;
  std::int64_t micro_batch = 0;
  OptimizerFamily optimizer = adamw();
  std::int64_t positions = 600;
};

struct RankedOutcome {
  std::vector<ForwardBackwardResult> results;  // of both adapters, step by step
  std::vector<std::vector<std::vector<float>>> scores;
  std::vector<WeightImages> gradients, published;
  std::vector<OptimResult> steps;
  std::vector<TrainerState> states;
  ForwardCounts work;
};

// Alpha over rank is no power of two: a scale that came before a join would round otherwise.
constexpr AdapterSettings kAdaptAll{.rank = 4, .alpha = 7, .attention = true, .mlp = true, .unembedding = true};

struct RankedBench {
  Runtime runtime;
  std::shared_ptr<FrozenBase> base;
  std::shared_ptr<const AdapterLayout> layout;
  RankedBench(const TrainBench& m, const RankedCase& c, std::unique_ptr<Ranks> ranks = nullptr)
      : runtime({.kind = c.backend, .threads = 1}, m.model, profile_by_name(c.profile), c.positions),
        base(std::make_shared<FrozenBase>(runtime, make_weight_set(runtime.backend, m.model->manifest(), m.masters, runtime.profile, 1),
                                          TrainerOptions{.micro_batch = c.micro_batch, .checkpoint_activations = c.checkpoint, .ranks = c.ranks},
                                          std::make_shared<RankRuntimes>(runtime, c.ranks, std::move(ranks)))),
        layout(std::make_shared<const AdapterLayout>(m.model->manifest(), kAdaptAll)) {}
};

WeightImages ranked_values(Backend& backend, const AdapterWeights& weights) {
  WeightImages images;
  for (const Buffer& parameter : weights.parameters) images.push_back(backend.stream().read(parameter.view()).get());
  return images;
}

RankedOutcome train_two(const TrainBench& m, const RankedCase& c, const std::vector<TrainSequence>& data, std::unique_ptr<Ranks> ranks = nullptr) {
  RankedBench bench(m, c, std::move(ranks));
  AdapterTrainer one(bench.base, bench.layout, stirred(*bench.layout, 1), c.optimizer), two(bench.base, bench.layout, stirred(*bench.layout, 2), c.optimizer);
  const std::vector<TrainSequence> fewer(data.begin() + 1, data.end());
  RankedOutcome out;
  for (int step = 0; step < 2; ++step) {
    out.scores = AdapterTrainer::score_together(*bench.base, {{&one, &fewer}, {nullptr, &data}, {&two, &data}});
    if (step == 0) {
      for (ForwardBackwardResult& result : AdapterTrainer::forward_backward_together({{&one, &data, {}}, {&two, &fewer, {}}})) out.results.push_back(result);
    } else {
      out.results.push_back(one.forward_backward(data, {}));
      out.results.push_back(two.forward_backward(fewer, {}));
    }
    for (AdapterTrainer* trainer : {&one, &two}) {
      out.gradients.push_back(trainer->gradient_images());
      out.steps.push_back(trainer->optim_step({.weight_decay = 0.1, .max_norm = 0.5, .group_norms = true}));
    }
  }
  for (AdapterTrainer* trainer : {&one, &two}) {
    out.states.push_back(trainer->state().all());
    out.published.push_back(ranked_values(bench.runtime.backend, *trainer->weights()));
  }
  out.work = bench.base->work();
  return out;
}

void expect_same_adapters(const Manifest& manifest, const RankedOutcome& got, const RankedOutcome& want, const std::string& what) {
  SCOPED_TRACE(what);
  EXPECT_EQ(got.scores, want.scores);
  for (std::size_t i = 0; i < want.results.size(); ++i) {
    EXPECT_EQ(got.results[i].logprobs, want.results[i].logprobs);
    EXPECT_EQ(got.results[i].entropies, want.results[i].entropies);
    EXPECT_EQ(got.results[i].loss, want.results[i].loss);
    EXPECT_EQ(got.results[i].rows, want.results[i].rows);
    EXPECT_EQ(difference(manifest, got.gradients[i], want.gradients[i]), "") << "gradients " << i;
    EXPECT_EQ(got.steps[i].gradient_norm, want.steps[i].gradient_norm);
    EXPECT_EQ(got.steps[i].group_norms, want.steps[i].group_norms);
  }
  for (std::size_t i = 0; i < want.states.size(); ++i) {
    expect_same_state(manifest, got.states[i], want.states[i]);
    EXPECT_EQ(difference(manifest, got.published[i], want.published[i]), "") << "weights";
  }
  EXPECT_EQ(got.work.expert_rows, want.work.expert_rows);
}

const Manifest& manifest_of(const TrainBench& m) {
  static std::vector<std::unique_ptr<AdapterLayout>> all;
  return all.emplace_back(std::make_unique<AdapterLayout>(m.model->manifest(), kAdaptAll))->manifest();
}

class AdapterRanks : public ::testing::TestWithParam<const char*> {};

// What cuts matrices and deals passes needs no text of two blocks of positions.
constexpr int kOneBlockEach = 150;

// Pieces of a long sequence, whose adapters' gradients are joined as those of weights are; the other sequences go whole.
TEST_P(AdapterRanks, PiecesHaveTheBitsOfOneRank) {
  std::string config = GetParam();
  const std::string key = "\"max_position_embeddings\": ";
  const std::size_t at = config.find(key) + key.size();
  const TrainBench m(config.replace(at, config.find(',', at) - at, "4096"));
  std::vector<TrainSequence> data = sequences(m.model->facts().vocabulary, 3, kOneBlockEach);
  std::vector<std::int32_t> tokens(1600);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>((i * i + 7 * i) % 89);
  data[2] = TrainSequence::next_token(tokens);
  const RankedOutcome want = train_two(m, {.positions = 2048}, data);
  for (const RankLayout& ranks : {RankLayout{.cp = 2}, {.tp = 2, .pp = 2, .cp = 2}})
    expect_same_adapters(manifest_of(m), train_two(m, {.ranks = ranks, .positions = 2048}, data), want, ranks.text());
  // All kinds of ranks at once, over bf16 and over few bits.
  constexpr RankLayout kAllKinds{.tp = 2, .dp = 2, .ep = 2, .pp = 2, .cp = 2, .shard = RankShard::weights};
  if (GetParam() == std::string(kQwen)) return;
  const std::string profile = GetParam() == std::string(kLlama) ? "cpu-int4-base" : "cpu-bf16w";
  const RankedOutcome rounded = train_two(m, {.profile = profile, .positions = 2048}, data);
  for (const RankLayout& ranks : {RankLayout{.tp = 2, .cp = 2}, kAllKinds})
    expect_same_adapters(manifest_of(m), train_two(m, {.ranks = ranks, .profile = profile, .positions = 2048}, data), rounded, profile + " " + ranks.text());
  EXPECT_NE(difference(manifest_of(m), rounded.gradients[0], want.gradients[0]), "");  // the control: what differs is seen
}

TEST_P(AdapterRanks, StepsHaveTheBitsOfOneRank) {
  const TrainBench m(GetParam());
  const std::vector<TrainSequence> data = sequences(m.model->facts().vocabulary, 4);
  const Manifest& manifest = manifest_of(m);
  const RankedOutcome want = train_two(m, {}, data);
  EXPECT_GT(want.steps[0].group_norms.size(), 2u);
  for (const RankLayout& ranks : {RankLayout{2, 1, 1}, {3, 1, 1}, {8, 1, 1}, {1, 3, 1}, {1, 1, 3}, {2, 2, 2}, {1, 1, 1, 2}, {2, 2, 1, 2}})
    expect_same_adapters(manifest, train_two(m, {.ranks = ranks}, data), want, ranks.text());
  expect_same_adapters(manifest, train_two(m, {.ranks = {2, 2, 1}, .backend = BackendKind::deferred, .checkpoint = true, .micro_batch = 1}, data), want,
                       "deferred, checkpointed, micro-batches of one");
  const RankedOutcome rounded = train_two(m, {.profile = "cpu-bf16w"}, data);
  expect_same_adapters(manifest, train_two(m, {.ranks = {2, 1, 2}, .profile = "cpu-bf16w"}, data), rounded, "cpu-bf16w");
  EXPECT_NE(difference(manifest, rounded.gradients[0], want.gradients[0]), "");  // the control: what differs is seen
}

// Frozen weights in shares; of four sequences and seven ranks some have no pass at all.
TEST_P(AdapterRanks, OverWeightsInSharesTheyHaveTheBitsOfOneRank) {
  const TrainBench m(GetParam());
  const std::vector<TrainSequence> data = sequences(m.model->facts().vocabulary, 4, kOneBlockEach);
  const RankedOutcome want = train_two(m, {}, data);
  for (const RankLayout& ranks :
       {RankLayout{.dp = 3, .shard = RankShard::weights}, {.dp = 7, .shard = RankShard::weights}, {.tp = 2, .dp = 2, .pp = 2, .shard = RankShard::weights}})
    for (const bool checkpoint : {false, true})
      expect_same_adapters(manifest_of(m), train_two(m, {.ranks = ranks, .checkpoint = checkpoint, .micro_batch = checkpoint ? 1 : 0}, data), want,
                           ranks.text());
}

TEST_P(AdapterRanks, WholeMatricesAreSteppedWithTheBitsOfOneRank) {
  const TrainBench m(GetParam());
  const std::vector<TrainSequence> data = sequences(m.model->facts().vocabulary, 4, kOneBlockEach);
  const OptimizerFamily& dimuon = *optimizer_named("dimuon");
  const RankedOutcome want = train_two(m, {.optimizer = dimuon}, data);
  for (const RankLayout& ranks : {RankLayout{1, 3, 2}, {1, 2, 1}, {1, 1, 2, 2}, {2, 1, 1}, {3, 2, 2}})
    expect_same_adapters(manifest_of(m), train_two(m, {.ranks = ranks, .optimizer = dimuon}, data), want, ranks.text());
}

TEST_P(AdapterRanks, OverWeightsOfFewBitsTheyHaveTheBitsOfOneRank) {
  const TrainBench m(GetParam());
  const std::vector<TrainSequence> data = sequences(m.model->facts().vocabulary, 3, kOneBlockEach);
  // Families begin at different layouts, so that each format meets all three over them.
  std::size_t turn = GetParam() == std::string(kGlm) ? 0 : GetParam() == std::string(kLlama) ? 1 : 2;
  for (const Profile& profile : profiles()) {
    const bool experts_alone = is_low_bit_format(profile.weight_bits) && (profile.weight_bits & kLowBitExperts) != 0;
    if (!is_low_bit_format(profile.weight_bits) || (experts_alone && m.model->facts().experts_a_token == 0)) continue;
    const RankedOutcome want = train_two(m, {.profile = profile.name}, data);
    // Two formats meet every layout, each other format one of three in its turn: formats differ in how weights are cut, which these three show.
    const std::vector<RankLayout> cuts = {{2, 1, 1}, {3, 1, 1}, {2, 1, 2, 2}};
    std::vector<RankLayout> layouts = {cuts[turn++ % cuts.size()]};
    if (profile.name == "cpu-int4-base" || profile.name == "cpu-mxfp8")
      layouts = {cuts[0], cuts[1], cuts[2], {1, 1, 2}, {1, 2, 1}, {1, 1, 1, 2}, {3, 2, 2}, {8, 1, 1}};
    layouts.push_back({.dp = 2, .shard = RankShard::weights});
    for (const RankLayout& ranks : layouts)
      expect_same_adapters(manifest_of(m), train_two(m, {.ranks = ranks, .profile = profile.name}, data), want, profile.name + " " + ranks.text());
  }
}

INSTANTIATE_TEST_SUITE_P(Families, AdapterRanks, ::testing::Values(kGlm, kLlama, kQwen));

TEST(AdapterRanksExpanded, HeadsWithKeysOfTheirOwnHaveTheBitsOfOneRank) {
  const TrainBench m(kOverAllKeys);
  const std::vector<TrainSequence> data = sequences(m.model->facts().vocabulary, 3);
  for (const char* profile : {"cpu-f32", "cpu-f32-expanded"}) {
    const RankedOutcome want = train_two(m, {.profile = profile}, data);
    for (const RankLayout& ranks : {RankLayout{2, 1, 1}, {4, 1, 1}, {2, 1, 2}})
      expect_same_adapters(manifest_of(m), train_two(m, {.ranks = ranks, .profile = profile}, data), want, profile + (" " + ranks.text()));
  }
}

// The control: another summation is another outcome, over ranks too.
TEST(AdapterRanksControl, AnotherLeafCountIsSeen) {
  const TrainBench m(kLlama);
  const std::vector<TrainSequence> data = sequences(m.model->facts().vocabulary, 3);
  const RankedOutcome want = train_two(m, {}, data), got = train_two(m, {.ranks = {2, 1, 1}, .profile = "study-leaves-f32"}, data);
  EXPECT_NE(difference(manifest_of(m), got.states[0].masters, want.states[0].masters), "");
}

// Owners that hold some ranks each, and learn of the others' through their groups alone.
TEST(AdapterRanksElsewhere, AnOwnerOfSomeRanksHasTheBitsOfAll) {
  const TrainBench m(kLlama);
  const std::vector<TrainSequence> data = sequences(m.model->facts().vocabulary, 3, kOneBlockEach);
  const RankedOutcome want = train_two(m, {}, data);
  const RankLayout layout{2, 2, 1};
  std::vector<RankedOutcome> got(2);
  beside_each_other(layout, {1, 3},
                    [&](std::size_t owner, std::unique_ptr<Ranks> ranks) { got[owner] = train_two(m, {.ranks = layout}, data, std::move(ranks)); });
  for (const RankedOutcome& own : got) expect_same_adapters(manifest_of(m), own, want, "of some ranks");
}

TEST(AdapterRanksState, SavedInOneLayoutResumesInAnother) {
  const TrainBench m(kQwen);
  const std::vector<TrainSequence> data = sequences(m.model->facts().vocabulary, 3, kOneBlockEach);
  std::optional<TrainerState> whole;
  for (const std::vector<RankLayout>& layouts : {std::vector<RankLayout>{{}, {}, {}}, {{2, 1, 1}, {1, 2, 1}, {3, 1, 1}}}) {
    std::optional<TrainerState> state;
    for (const RankLayout& ranks : layouts) {
      RankedBench bench(m, {.ranks = ranks});
      AdapterTrainer trainer(bench.base, bench.layout, stirred(*bench.layout, 1));
      if (state) trainer.restore(*state);
      trainer.forward_backward(data, {});
      trainer.optim_step({});
      state = trainer.state().all();
      EXPECT_EQ(trainer.state().image(StatePart::master, 1), state->masters[1]);
    }
    if (!whole) whole = state;
    EXPECT_EQ(state->step, 3);
    EXPECT_EQ(difference(manifest_of(m), state->masters, whole->masters), "");
    EXPECT_EQ(difference(manifest_of(m), state->second_moments, whole->second_moments), "");
  }
}

TEST(AdapterRanksMemory, ARankHoldsItsShareOfBaseAndAdapter) {
  const TrainBench m(kLlama);
  const auto held = [&](const RankLayout& ranks, MemoryCategory category) {
    RankedBench bench(m, {.ranks = ranks});
    AdapterTrainer trainer(bench.base, bench.layout, initial_adapter(*bench.layout, 1));
    Runtime& last = bench.base->rank(ranks.size() - 1).runtime();  // the first holds the whole base too, for who samples
    return last.backend.device().memory().current(category);
  };
  for (const MemoryCategory category : {MemoryCategory::weights, MemoryCategory::optimizer})
    EXPECT_LT(held({4, 1, 1}, category), held({}, category) * 8 / 10) << kMemoryCategoryNames[static_cast<int>(category)];
  EXPECT_LT(held({1, 4, 1}, MemoryCategory::optimizer), held({}, MemoryCategory::optimizer) * 7 / 10);  // an A of few rows is one rank's
  const RankLayout in_shares{.dp = 4, .shard = RankShard::weights};
  EXPECT_LT(held(in_shares, MemoryCategory::weights), held({}, MemoryCategory::weights) * 6 / 10);  // of the base, not of the adapter
  EXPECT_GT(held({1, 4, 1}, MemoryCategory::weights), held({}, MemoryCategory::weights) * 9 / 10);
}

// One adapter's bad number fails its own job on every rank, and on no other; the other's bits are those it has alone.
TEST(AdapterRanksFailure, AJobThatFailsOnOneRankLeavesItsCompanyAlone) {
  const TrainBench m(kLlama);
  const std::vector<TrainSequence> data = sequences(m.model->facts().vocabulary, 3);
  RankedBench bench(m, {.ranks = {2, 2, 1}});
  WeightImages broken = stirred(*bench.layout, 2);
  broken[1][0] = std::numeric_limits<float>::infinity();
  AdapterTrainer good(bench.base, bench.layout, stirred(*bench.layout, 1)), bad(bench.base, bench.layout, broken);
  RankedBench single(m, {});
  AdapterTrainer alone(single.base, single.layout, stirred(*single.layout, 1));
  const ForwardBackwardResult want = alone.forward_backward(data, {});
  AdapterTrainer::Failures failures;
  const auto results = AdapterTrainer::forward_backward_together({{&bad, &data, {}}, {&good, &data, {}}}, &failures);
  ASSERT_TRUE(failures[0].has_value());
  EXPECT_EQ(failures[0]->code(), ErrorCode::numeric);
  EXPECT_FALSE(failures[1].has_value());
  EXPECT_EQ(results[1].logprobs, want.logprobs);
  EXPECT_THROW(bad.optim_step({}), Error);
  EXPECT_EQ(good.optim_step({}).gradient_norm, alone.optim_step({}).gradient_norm);
  EXPECT_EQ(good.state().master_hash(), alone.state().master_hash());
}

}  // namespace
}  // namespace lockstep
