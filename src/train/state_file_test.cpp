// Optimizer state in a file has the bits of state in memory; what it takes of memory is what it says.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "tensor/file_memory.h"
#include "train/adapter_trainer.h"
#include "train/optimizers/adam.h"
#include "train/optimizers/filed_step.h"
#include "train/state_test_tools.h"
#include "train/train_test_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

struct StateFolder {
  std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / ("lockstep-state-file-" + std::to_string(getpid()));
  StateFolder() { std::filesystem::create_directories(path); }
  ~StateFolder() { std::filesystem::remove_all(path); }
  bool empty() const { return std::filesystem::is_empty(path); }
};

struct StateCase {
  std::string profile, folder;
  RankLayout ranks;
  BackendKind backend = BackendKind::cpu;
  bool release = false;
  OptimizerFamily optimizer = adamw();
};

TrainerState steps_of(const TrainBench& bench, const StateCase& c, int steps, const TrainerState* from = nullptr) {
  const std::vector<TrainSequence> data = {sequences(bench.model->facts().vocabulary, 1)[0]};
  Runtime runtime({.kind = c.backend, .threads = 1}, bench.model, profile_by_name(c.profile), 600);
  Trainer trainer(runtime, bench.masters, {.optimizer_folder = c.folder, .release_state = c.release, .optimizer = c.optimizer, .ranks = c.ranks});
  if (from) {
    trainer.restore(*from);
    trainer.restore(*from);  // the file has room for one state: a second is written over the first
  }
  for (int step = 0; step < steps; ++step) {
    trainer.forward_backward(data, {});
    trainer.optim_step({.weight_decay = 0.1, .router_bias_rate = 1e-3});
  }
  return trainer.state().all();
}

void expect_state(const Manifest& manifest, const TrainerState& got, const TrainerState& want, const std::string& what) {
  SCOPED_TRACE(what);
  expect_same_state(manifest, got, want);
}

TEST(StateFile, HasTheBitsOfMemory) {
  const StateFolder folder;
  std::size_t turn = 0;  // a family meets every other layout under a profile, and the others under the next: families, profiles and layouts meet in pairs
  for (const char* config : {kGlm, kLlama}) {
    const TrainBench bench(config);
    ++turn;
    for (const char* profile : {"cpu-f32", "cpu-bf16w", "cpu-int4-qat", "cpu-mxfp8"}) {
      const TrainerState want = steps_of(bench, {.profile = profile}, 3), early = steps_of(bench, {.profile = profile}, 1);
      ++turn;
      for (const RankLayout& ranks : {RankLayout{1, 1, 1}, {1, 2, 1}, {2, 1, 1}, {2, 3, 1}}) {
        if (++turn % 2) continue;
        const std::string what = std::string(profile) + ", " + ranks.text();
        expect_state(bench.model->manifest(), steps_of(bench, {profile, folder.path, ranks}, 3), want, what);
        expect_state(bench.model->manifest(), steps_of(bench, {profile, folder.path, ranks}, 2, &early), want, what + ", restored");
      }
      expect_state(bench.model->manifest(), steps_of(bench, {profile, folder.path, {1, 2, 1}, BackendKind::deferred}, 3), want, "deferred");
      for (const BackendKind kind : {BackendKind::cpu, BackendKind::deferred}) {
        expect_state(bench.model->manifest(), steps_of(bench, {profile, folder.path, {}, kind, true}, 3), want, "released after each use");
        expect_state(bench.model->manifest(), steps_of(bench, {profile, folder.path, {}, kind, true}, 2, &early), want, "released and restored");
      }
      EXPECT_NE(difference(bench.model->manifest(), early.first_moments, want.first_moments), "");  // the control
    }
  }
  EXPECT_TRUE(folder.empty());
}

// More than two strips, and a last one that is cut anywhere.
TEST(StateFile, StripsHaveTheBitsOfOneLaunch) {
  const StateFolder folder;
  constexpr std::int64_t kSize = 16 * 37'003;
  RandomSequence draws(5, RandomStream::fuzz);
  std::vector<std::vector<float>> values(4, std::vector<float>(kSize));  // master, m, v, gradient
  for (std::vector<float>& v : values)
    for (float& x : v) x = static_cast<float>(draws.uniform()) - (&v == &values[2] ? 0.0f : 0.5f);
  for (const BackendKind kind : {BackendKind::cpu, BackendKind::deferred})
    for (const bool separate : {false, true}) {  // masters beside a narrower copy are state, too
      std::vector<std::vector<float>> results[2];
      for (const bool filed : {false, true}) {
        Backend backend({.kind = kind, .threads = 2});
        const auto file = std::make_shared<FileMemory>(folder.path, 3 * backend.device().file_bytes(DType::f32, kSize));
        std::vector<Buffer> b;
        for (std::size_t i = 0; i < values.size(); ++i) {
          const bool state = filed && (i == 1 || i == 2 || (i == 0 && separate));
          b.push_back(state ? backend.device().allocate_in(file, DType::f32, 1, kSize, MemoryCategory::optimizer_file)
                            : backend.device().allocate(DType::f32, 1, kSize, MemoryCategory::workspace));
          backend.stream().write(b.back().view(), values[i]);
        }
        const Buffer out = backend.device().allocate(separate ? DType::bf16 : DType::f32, 1, kSize, MemoryCategory::workspace),
                     norm = backend.device().upload(std::vector<float>{3.0f}, 1, 1, MemoryCategory::workspace);
        launch_adamw(backend, file,
                     AdamStep({.weight_decay = 0.1}, 2)
                         .of(b[0].view(), b[1].view(), b[2].view(), separate ? b[0].view() : out.view(), separate ? out.view() : View{}, b[3].view(),
                             norm.view(), true));
        for (const Buffer& one : {b[0], b[1], b[2], out}) results[filed].push_back(backend.stream().read(one.view()).get());
      }
      EXPECT_EQ(results[0], results[1]);
      EXPECT_NE(results[0][1], values[1]);
    }
}

TEST(StateFile, MuonHasTheBitsOfMemory) {
  const StateFolder folder;
  const TrainBench bench(kLlama);
  for (const char* profile : {"cpu-f32", "cpu-bf16w"}) {
    StateCase c{.profile = profile, .optimizer = *optimizer_named("dimuon")};
    const TrainerState want = steps_of(bench, c, 3), early = steps_of(bench, c, 1);
    c.folder = folder.path, c.release = true;
    expect_state(bench.model->manifest(), steps_of(bench, c, 3), want, profile);
    expect_state(bench.model->manifest(), steps_of(bench, c, 2, &early), want, std::string(profile) + ", restored");
    EXPECT_NE(difference(bench.model->manifest(), steps_of(bench, {.profile = profile}, 3).masters, want.masters), "");
  }
}

TEST(StateFile, AnAdaptersMomentsMayLieThere) {
  const StateFolder folder;
  const TrainBench m(kLlama);
  const std::vector<TrainSequence> data = {sequences(m.model->facts().vocabulary, 1)[0]};
  for (const OptimizerFamily& optimizer : optimizer_families()) {
    const auto state_of = [&](const TrainerOptions& options, int steps, const TrainerState* from = nullptr) {
      Runtime runtime({.threads = 1}, m.model, profile_by_name("cpu-f32"), 600);
      const auto base = std::make_shared<FrozenBase>(runtime, make_weight_set(runtime.backend, m.model->manifest(), m.masters, runtime.profile, 1), options);
      const auto layout = std::make_shared<const AdapterLayout>(m.model->manifest(), AdapterSettings{.rank = 4});
      AdapterTrainer trainer(base, layout, initial_adapter(*layout, 1), optimizer);
      EXPECT_EQ(runtime.backend.device().memory().current(MemoryCategory::optimizer) == 0, !options.optimizer_folder.empty());
      if (from) trainer.restore(*from);
      for (int step = 0; step < steps; ++step) {
        trainer.forward_backward(data, {});
        trainer.optim_step({});
      }
      EXPECT_EQ(runtime.backend.device().memory().current(MemoryCategory::gradients), 0);  // an idle trainer has none
      return std::pair(trainer.state().all(), layout);
    };
    const TrainerOptions in_file{.accumulate = true, .optimizer_folder = folder.path, .release_state = true};
    const auto [want, layout] = state_of({.accumulate = true}, 3);
    const TrainerState early = state_of({.accumulate = true}, 1).first;
    expect_state(layout->manifest(), state_of(in_file, 3).first, want, "an adapter");
    expect_state(layout->manifest(), state_of(in_file, 2, &early).first, want, "an adapter, restored");
    EXPECT_NE(difference(layout->manifest(), early.first_moments, want.first_moments), "");
  }
  EXPECT_TRUE(folder.empty());
}

TEST(StateFile, TheAccountsMoveFromMemoryToTheFile) {
  const StateFolder folder;
  const TrainBench bench(kLlama);
  for (const char* profile : {"cpu-f32", "cpu-bf16w"}) {
    const auto account = [&](const std::string& where, MemoryCategory category) {
      Runtime runtime({.threads = 1}, bench.model, profile_by_name(profile), 600);
      Trainer trainer(runtime, bench.masters, {.optimizer_folder = where});
      return trainer.ranks().memory(0).current(category);
    };
    const std::int64_t moments = account("", MemoryCategory::optimizer), weights = account("", MemoryCategory::weights);
    EXPECT_EQ(account("", MemoryCategory::optimizer_file), 0);
    EXPECT_EQ(account(folder.path, MemoryCategory::optimizer), 0);
    const std::int64_t masters = weights - account(folder.path, MemoryCategory::weights);
    if (std::string(profile) == "cpu-f32") EXPECT_EQ(masters, 0);  // the compute copy is the master
    else EXPECT_GT(masters, moments / 3);
    EXPECT_EQ(account(folder.path, MemoryCategory::optimizer_file), moments + masters);
  }
}

TEST(StateFile, AFolderThatIsNotThereIsOneErrorOfAnyLayout) {
  const TrainBench bench(kLlama);
  for (const RankLayout& ranks : {RankLayout{1, 1, 1}, {1, 2, 1}, {2, 1, 1}}) {
    Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-f32"), 600);
    try {
      Trainer trainer(runtime, bench.masters, {.optimizer_folder = "no/such/folder", .ranks = ranks});
      FAIL() << "the folder is not there";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::io);
      EXPECT_NE(std::string(e.what()).find("no/such/folder"), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace lockstep
