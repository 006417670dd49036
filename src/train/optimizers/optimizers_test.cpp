// An optimizer is one file and one row: one that is planted here trains weights and adapters, lies in memory and in files, is saved and goes
// on, and nothing else was told of it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "base/error.h"
#include "train/adapter_trainer.h"
#include "train/optimizers/optimizer.h"
#include "train/train_test_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

// Gradient descent with momentum: m = beta1 m + g factor, w' = w - rate m. On the host, so that it is plain.
class MomentumStepper final : public Stepper {
 public:
  explicit MomentumStepper(const StepSettings& settings) : settings_(settings) {}
  void move(const Parameter&, const ParameterRole&, const StepViews& v) override {
    Stream& stream = settings_.backend.stream();
    std::vector<float> w = stream.read(v.master).get(), m = stream.read(v.moments[0]).get();
    const std::vector<float> g = stream.read(v.gradient).get();
    for (std::size_t i = 0; i < w.size(); ++i) {
      m[i] = static_cast<float>(settings_.adam.beta1) * m[i] + g[i] * settings_.factor;
      w[i] -= static_cast<float>(settings_.adam.learning_rate) * m[i];
    }
    stream.write(v.moments[0], m);
    stream.write(v.master_out, w);
    if (v.compute_out) stream.write(v.compute_out, w);
  }

 private:
  StepSettings settings_;
};

OptimizerFamily planted_momentum() {
  return {"momentum", false, [](const ParameterRole&) { return MomentSpec{.moments = 1, .whole = true}; },
          [](const StepSettings& settings) -> std::unique_ptr<Stepper> { return std::make_unique<MomentumStepper>(settings); }};
}

struct OptimizersFolder {
  std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / ("lockstep-optimizers-" + std::to_string(getpid()));
  OptimizersFolder() { std::filesystem::create_directories(path); }
  ~OptimizersFolder() { std::filesystem::remove_all(path); }
};

constexpr double kRate = 0.05;

TrainerState momentum_steps(const TrainBench& bench, const TrainerOptions& given, const char* profile, int steps, const TrainerState* from = nullptr) {
  TrainerOptions options = given;
  options.optimizer = planted_momentum();
  Runtime runtime({.threads = 1}, bench.model, profile_by_name(profile), 600);
  Trainer trainer(runtime, bench.masters, options);
  if (from) trainer.restore(*from);
  const std::vector<TrainSequence> data = {sequences(bench.model->facts().vocabulary, 1)[0]};
  for (int step = 0; step < steps; ++step) {
    trainer.forward_backward(data, {});
    trainer.optim_step({.learning_rate = kRate, .max_norm = 0});
  }
  return trainer.state().all();
}

void expect_equal_states(const Manifest& manifest, const TrainerState& got, const TrainerState& want, const std::string& what) {
  EXPECT_EQ(difference(manifest, got.masters, want.masters), "") << what << ", masters";
  EXPECT_EQ(difference(manifest, got.first_moments, want.first_moments), "") << what << ", first moments";
  EXPECT_EQ(difference(manifest, got.second_moments, want.second_moments), "") << what << ", second moments";
  EXPECT_EQ(got.step, want.step) << what;
}

TEST(Optimizers, OneThatIsPlantedNeedsItsRowAlone) {
  const OptimizersFolder folder;
  for (const char* config : {kGlm, kLlama}) {
    const TrainBench bench(config);
    const Manifest& manifest = bench.model->manifest();
    for (const char* profile : {"cpu-f32", "cpu-bf16w"}) {
      const TrainerState want = momentum_steps(bench, {}, profile, 3), early = momentum_steps(bench, {}, profile, 1);
      expect_equal_states(manifest, momentum_steps(bench, {}, profile, 2, &early), want, "restored");
      expect_equal_states(manifest, momentum_steps(bench, {.optimizer_folder = folder.path, .release_state = true}, profile, 3), want, "in a file");
      for (const RankLayout& ranks : {RankLayout{1, 2, 1}, {2, 1, 1}})
        expect_equal_states(manifest, momentum_steps(bench, {.ranks = ranks}, profile, 3), want, ranks.text());
      // The first step is w - rate g, and the momentum is g; what it does not keep is told as zeros.
      for (std::size_t i = 0; i < early.masters.size(); ++i) {
        if (early.first_moments[i].empty()) continue;
        EXPECT_EQ(early.second_moments[i], std::vector<float>(early.first_moments[i].size(), 0.0f));
        for (std::size_t at = 0; at < early.masters[i].size(); at += 7)
          EXPECT_EQ(early.masters[i][at], bench.masters[i][at] - static_cast<float>(kRate) * early.first_moments[i][at]) << manifest.parameters()[i].name;
      }
      EXPECT_NE(difference(manifest, early.masters, bench.masters), "");
    }
  }
}

TEST(Optimizers, OneThatIsPlantedTrainsAdaptersToo) {
  const OptimizersFolder folder;
  const TrainBench m(kLlama);
  const std::vector<TrainSequence> data = {sequences(m.model->facts().vocabulary, 1)[0]};
  const auto layout = std::make_shared<const AdapterLayout>(m.model->manifest(), AdapterSettings{.rank = 4});
  const WeightImages start = initial_adapter(*layout, 1);
  const auto steps = [&](const TrainerOptions& options, int count) {
    Runtime runtime({.threads = 1}, m.model, profile_by_name("cpu-f32"), 600);
    const auto base = std::make_shared<FrozenBase>(runtime, make_weight_set(runtime.backend, m.model->manifest(), m.masters, runtime.profile, 1), options);
    AdapterTrainer trainer(base, layout, start, planted_momentum());
    for (int step = 0; step < count; ++step) {
      trainer.forward_backward(data, {});
      trainer.optim_step({.learning_rate = kRate, .max_norm = 0});
    }
    return trainer.state().all();
  };
  const TrainerState one = steps({}, 1);
  for (std::size_t i = 0; i < start.size(); ++i)
    for (std::size_t at = 0; at < start[i].size(); ++at) EXPECT_EQ(one.masters[i][at], start[i][at] - static_cast<float>(kRate) * one.first_moments[i][at]);
  EXPECT_NE(difference(layout->manifest(), one.masters, start), "");
  expect_equal_states(layout->manifest(), steps({.optimizer_folder = folder.path, .release_state = true}, 3), steps({}, 3), "in a file");
}

TEST(Optimizers, AreFoundByName) {
  std::set<std::string_view> names;
  for (const OptimizerFamily& family : optimizer_families()) {
    EXPECT_TRUE(names.insert(family.name).second) << family.name;
    ASSERT_EQ(optimizer_named(family.name), &family);
    for (const bool hidden : {false, true}) EXPECT_LE(family.moments({.hidden = hidden}).moments, MomentSpec::kMostMoments);
  }
  EXPECT_EQ(names, (std::set<std::string_view>{"adamw", "dimuon"}));
  EXPECT_EQ(optimizer_named("adam"), nullptr);
}

}  // namespace
}  // namespace lockstep
