// Experts that are given to tokens: the model's own change no bit, others do, and neither depends on how rows are computed. (What numbers
// others give is held against torch in tests/training/test_routing.py.)
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "model/observer.h"
#include "train/adapter_trainer.h"
#include "train/kept_passes.h"
#include "train/prefix_test_tools.h"

namespace lockstep {
namespace {

// The experts of the rows of a forward, a layer after another.
class RouteReader final : public OperationObserver {
 public:
  std::vector<std::vector<std::int32_t>> layers;
  void begin_forward(Backend& backend, const Batch&) override {
    backend_ = &backend;
    layers.clear();
  }
  void operation(const Operation& operation) override {
    if (operation.name == "route") layers.push_back(backend_->stream().read_ints(operation.output).get());
  }

 private:
  Backend* backend_ = nullptr;
};

// The data with the experts that the model itself chooses.
std::vector<TrainSequence> with_own_experts(const TrainBench& m, const std::string& profile, std::vector<TrainSequence> data) {
  Runtime runtime({.threads = 2}, m.model, profile_by_name(profile), 700);
  RouteReader reader;
  runtime.observer = &reader;
  Trainer trainer(runtime, m.masters, {});
  const ExpertShape shape = m.model->facts().expert_shape();
  for (TrainSequence& d : data) {
    TrainSequence plain = d;
    plain.prefix_group = -1, plain.shared_prefix = 0;
    trainer.score({plain});
    EXPECT_EQ(static_cast<std::int64_t>(reader.layers.size()), shape.layers);
    for (std::size_t i = 0; i < d.tokens.size(); ++i)
      for (const std::vector<std::int32_t>& layer : reader.layers)
        for (std::size_t j = 0; j < static_cast<std::size_t>(shape.experts_a_token); ++j)
          d.experts.push_back(layer[i * static_cast<std::size_t>(shape.experts_a_token) + j]);
  }
  return data;
}

// Other experts for most tokens, the same ones at the same place of a text; the others are the model's to route.
std::vector<TrainSequence> with_other_experts(const ExpertShape& shape, std::vector<TrainSequence> data) {
  for (TrainSequence& d : data) {
    RandomSequence draws(9, RandomStream::fuzz);
    d.experts.clear();
    for (std::size_t i = 0; i < d.tokens.size(); ++i) {
      const bool routed = draws.below(3) == 0;
      for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
        const auto first = static_cast<std::int32_t>(draws.below(static_cast<std::uint32_t>(shape.experts - 1)));
        for (const std::int32_t e : {first, first + 1}) d.experts.push_back(routed ? kOwnExperts : e);
      }
    }
  }
  return data;
}

struct OneStep {
  std::vector<std::vector<std::uint32_t>> scores, logprobs, entropies;
  std::vector<WeightImages> gradients;
  std::uint64_t hash = 0;
};
void add_rows(std::vector<std::vector<std::uint32_t>>& to, const std::vector<std::vector<float>>& rows) {
  for (const auto& row : rows) to.push_back(bits_of(row));
}

OneStep one_step(const TrainBench& m, const PrefixCase& c, const std::vector<TrainSequence>& data, const std::shared_ptr<KeptPasses>& kept = nullptr) {
  Runtime runtime({.kind = c.backend, .isa = c.isa, .threads = c.threads}, m.model, profile_by_name(c.profile), 700);
  Trainer trainer(runtime, m.masters,
                  {.micro_batch = c.micro_batch,
                   .checkpoint_activations = c.checkpoint,
                   .share_prefixes = c.share,
                   .declared_prefixes = c.declared,
                   .kept = kept,
                   .ranks = c.ranks});
  LossOptions loss;
  loss.kind = LossKind::policy;
  OneStep step;
  add_rows(step.scores, trainer.score(data));
  const ForwardBackwardResult result = trainer.forward_backward(data, loss);
  add_rows(step.logprobs, result.logprobs);
  add_rows(step.entropies, result.entropies);
  step.gradients.push_back(trainer.gradient_images());
  trainer.optim_step({.router_bias_rate = 1e-2});  // loads of the experts that were taken
  step.hash = trainer.state().master_hash();
  return step;
}

void expect_same_gradients(const TrainBench& m, const OneStep& got, const OneStep& want, const std::string& what) {
  SCOPED_TRACE(what);
  EXPECT_EQ(got.scores, want.scores);
  EXPECT_EQ(got.logprobs, want.logprobs);
  EXPECT_EQ(got.entropies, want.entropies);
  EXPECT_EQ(difference(m.model->manifest(), got.gradients[0], want.gradients[0]), "");
  EXPECT_EQ(got.hash, want.hash);
}

std::vector<std::pair<std::string, PrefixCase>> ways() {
  return {{"shared prefixes", {.share = true, .threads = 2}},
          {"shared prefixes, checkpoints, micro-batches", {.share = true, .micro_batch = 3, .checkpoint = true}},
          {"deferred", {.share = true, .threads = 2, .backend = BackendKind::deferred}},
          {"micro-batches of one", {.threads = 2, .micro_batch = 1}},
          {"ranks", {.threads = 2, .ranks = {.tp = 2, .dp = 2, .ep = 2}}},
          {"avx2", {.share = true, .isa = InstructionSet::avx2}},
          {"scalar", {.share = true, .isa = InstructionSet::scalar}}};
}
const std::vector<GroupShape> kGroups = {{20, {9, 4, 12}}, {7, {5, 5}}, {1, {6}}};

TEST(GivenExperts, TheModelsOwnChangeNoBit) {
  const TrainBench m(kPrefixGlm);
  for (const char* profile : {"cpu-f32", "cpu-bf16w"}) {
    const auto data = groups_of(kGroups), own = with_own_experts(m, profile, data);
    const OneStep want = one_step(m, {.profile = profile}, data);
    expect_same_gradients(m, one_step(m, {.profile = profile}, own), want, "plain");
    for (auto [name, way] : ways()) {
      way.profile = profile;
      expect_same_gradients(m, one_step(m, way, own), want, name);
    }
  }
}

TEST(GivenExperts, OthersChangeResultsAndTheseDoNotDependOnTheWay) {
  const TrainBench m(kPrefixGlm);
  const auto data = groups_of(kGroups), other = with_other_experts(m.model->facts().expert_shape(), data);
  const OneStep plain = one_step(m, {}, data), want = one_step(m, {}, other);
  EXPECT_NE(want.scores, plain.scores);
  EXPECT_NE(want.hash, plain.hash);
  EXPECT_NE(difference(m.model->manifest(), want.gradients[0], plain.gradients[0]), "");
  for (const auto& [name, way] : ways()) expect_same_gradients(m, one_step(m, way, other), want, name);
  const auto kept = std::make_shared<KeptPasses>(std::int64_t{1} << 30);
  expect_same_gradients(m, one_step(m, {}, other, kept), want, "kept");
  EXPECT_EQ(kept->statistics().used, 1);
}

// Equal tokens under other experts are other rows.
TEST(GivenExperts, PrefixesAreSharedWhereExpertsAreEqualToo) {
  const TrainBench m(kPrefixGlm);
  auto data = groups_of({{20, {9, 9, 9, 9}}});
  const auto other = with_other_experts(m.model->facts().expert_shape(), data);
  data[1].experts = other[1].experts;
  data[2].experts = other[2].experts;
  data[3].experts.assign(other[3].experts.size(), kOwnExperts);
  const std::vector<std::size_t> all{0, 1, 2, 3};
  const RowPlan plan = plan_rows(data, all, 16, true);
  std::vector<std::int64_t> shared;
  for (const SequenceSlice& slice : plan.slices) shared.push_back(slice.shared);
  std::sort(shared.begin(), shared.end());
  EXPECT_EQ(shared[0], 0);
  EXPECT_LT(shared[1], 20);  // two compute the prompt: as the model routes it, and as we do (up to the first token whose experts we give)
  EXPECT_GE(shared[2], 20);
  expect_same_gradients(m, one_step(m, {.share = true}, data), one_step(m, {}, data), "shared");
}

TEST(GivenExperts, OfDeclaredPrefixesAreTheGroups) {
  const TrainBench m(kPrefixGlm);
  const auto data = groups_of(kGroups, true), own = with_own_experts(m, "cpu-bf16w", data), other = with_other_experts(m.model->facts().expert_shape(), data);
  const OneStep want = one_step(m, {}, data);
  expect_same_gradients(m, one_step(m, {}, own), want, "own");
  const OneStep others = one_step(m, {}, other);
  EXPECT_NE(others.hash, want.hash);
  expect_same_gradients(m, one_step(m, {.checkpoint = true}, other), others, "checkpoints");
  auto wrong = other;
  wrong[1].experts[0] = wrong[1].experts[1] = kOwnExperts;
  for (std::size_t i = 0; i < static_cast<std::size_t>(m.model->facts().expert_shape().row()); ++i) wrong[1].experts[i] = static_cast<std::int32_t>(i % 2);
  try {
    one_step(m, {}, wrong);
    FAIL() << "taken";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "sequence 1: the experts of its shared prefix are not those of sequence 0, and both are of group 0");
  }
}

TEST(GivenExperts, ReachAdaptersThroughTheSameForward) {
  const TrainBench m(kPrefixGlm);
  const auto data = groups_of(kGroups), own = with_own_experts(m, "cpu-bf16w", data), other = with_other_experts(m.model->facts().expert_shape(), data);
  Runtime runtime({.threads = 2}, m.model, profile_by_name("cpu-bf16w"), 700);
  const auto weights = make_weight_set(runtime.backend, m.model->manifest(), m.masters, runtime.profile, 1);
  const auto layout = std::make_shared<const AdapterLayout>(m.model->manifest(), AdapterSettings{.rank = 4, .alpha = 6});
  const auto base = std::make_shared<FrozenBase>(runtime, weights, TrainerOptions{.share_prefixes = true});
  const auto step_of = [&](const std::vector<TrainSequence>& rows) {
    AdapterTrainer trainer(base, layout, initial_adapter(*layout, 1));
    LossOptions loss;
    loss.kind = LossKind::policy;
    const auto logprobs = trainer.forward_backward(rows, loss).logprobs;
    trainer.optim_step({});
    std::vector<std::vector<std::uint32_t>> bits;
    add_rows(bits, logprobs);
    for (const auto& image : trainer.state().masters()) bits.push_back(bits_of(image));
    return bits;
  };
  const auto plain = step_of(data);
  EXPECT_EQ(step_of(own), plain);
  EXPECT_NE(step_of(other), plain);
  // Several adapters' jobs in one pass, of which one is given experts.
  AdapterTrainer first(base, layout, initial_adapter(*layout, 1)), second(base, layout, initial_adapter(*layout, 2));
  const std::vector<std::vector<TrainSequence>> rows{other, data};
  const auto together = AdapterTrainer::score_together(*base, {{&first, &rows[0]}, {&second, &rows[1]}});
  std::vector<std::vector<std::uint32_t>> got, want;
  add_rows(got, together[0]), add_rows(got, together[1]);
  add_rows(want, first.score(other)), add_rows(want, second.score(data));
  EXPECT_EQ(got, want);
}

TEST(GivenExperts, AreAPartOfWhatAKeptForwardIsOf) {
  const TrainBench m(kPrefixGlm);
  const auto data = groups_of(kGroups), other = with_other_experts(m.model->facts().expert_shape(), data);
  Runtime runtime({.threads = 2}, m.model, profile_by_name("cpu-bf16w"), 700);
  TrainerOptions options{.accumulate = true, .kept = std::make_shared<KeptPasses>(std::int64_t{1} << 30)};
  Trainer trainer(runtime, m.masters, options);
  LossOptions loss;
  loss.kind = LossKind::policy;
  trainer.score(data);
  trainer.forward_backward(other, loss);
  EXPECT_EQ(options.kept->statistics().used, 0);
  trainer.forward_backward(data, loss);
  EXPECT_EQ(options.kept->statistics().used, 1);
}

TEST(GivenExperts, ThatCannotBeAreRefused) {
  const TrainBench m(kPrefixGlm), dense(kPrefixLlama);
  const auto refusal = [](const TrainBench& bench, const std::vector<std::int32_t>& experts) -> std::string {
    Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-f32"), 700);
    Trainer trainer(runtime, bench.masters, {});
    TrainSequence d = TrainSequence::next_token({1, 2, 3});
    d.experts = experts;
    try {
      trainer.score({d});
    } catch (const Error& e) {
      return e.what();
    }
    return "taken";
  };
  EXPECT_EQ(refusal(m, {0, 1, 2, 3, -1, -1, -1, -1}), "taken");
  EXPECT_EQ(refusal(m, {0, 1, 2, 3, -1, -1, -1}), "sequence 0: 7 numbers of experts, allowed are 8 (4 a token)");
  EXPECT_EQ(refusal(m, {0, 1, 2, 6, -1, -1, -1, -1}), "sequence 0: token 0 names expert 6 in sparse layer 1, allowed are 0 to 5");
  EXPECT_EQ(refusal(m, {0, 1, 2, 3, 4, 5, -1, -1}), "sequence 0: token 1 names expert -1 in sparse layer 1, allowed are 0 to 5");
  EXPECT_EQ(refusal(m, {0, 1, 3, 3, -1, -1, -1, -1}), "sequence 0: token 0 names expert 3 twice in sparse layer 1, allowed is once");
  EXPECT_EQ(refusal(m, {1, 0, 2, 3, -1, -1, -1, -1}), "sequence 0: token 0 names expert 1 before 0, allowed is ascending");
  EXPECT_EQ(refusal(dense, {0, 1}), "sequence 0: experts are given, and the model has none");
}

}  // namespace
}  // namespace lockstep
