// Gradients that no step has taken go to disk and come back: whatever stands there when they go, and whatever is added afterwards, the step has
// the bits that it would have had.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/child_process_test_tools.h"
#include "base/error.h"
#include "model/adapter_initial.h"
#include "train/adapter_trainer.h"
#include "train/train_test_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

struct WaitingFolder {
  std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / ("lockstep-waiting-gradients-" + std::to_string(getpid()));
  WaitingFolder() { std::filesystem::remove_all(path); }
  ~WaitingFolder() { std::filesystem::remove_all(path); }
};

struct WaitingCase {
  const char* name;
  TrainerOptions options;
  int calls_before, calls_after;
  bool in_batch = false;
};

std::vector<TrainSequence> part_of(const std::vector<TrainSequence>& data, int call) {
  const auto at = static_cast<std::size_t>(call);
  return {data[at % data.size()], data[(at + 1) % data.size()]};
}

LossOptions waiting_loss() { return {.normaliser = 10, .averaging = LossAveraging::sum}; }

// The masters after a step of its calls. `folder` not empty: another trainer takes over in the middle.
WeightImages stepped(const TrainBench& bench, Runtime& runtime, const WaitingCase& c, const std::filesystem::path& folder) {
  std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary, 4);
  data.erase(data.begin() + 1);  // the long one
  auto trainer = std::make_unique<Trainer>(runtime, bench.masters, c.options);
  const auto call = [&](int i) { trainer->forward_backward(part_of(data, i), waiting_loss()); };
  for (int i = 0; i < c.calls_before; ++i) call(i);
  if (c.in_batch) {
    trainer->begin_batch({.sequences = 2}, waiting_loss());
    trainer->add({1}, {data[0]});
  }
  if (!folder.empty()) {
    EXPECT_TRUE(trainer->has_gradients());
    auto batch = trainer->save_gradients(folder);
    trainer.reset();
    trainer = std::make_unique<Trainer>(runtime, bench.masters, c.options);
    trainer->load_gradients(folder, std::move(batch));
    EXPECT_TRUE(trainer->has_gradients());
    EXPECT_EQ(trainer->in_batch(), c.in_batch);
  }
  if (c.in_batch) {
    trainer->add({0}, {data[1]});
    EXPECT_EQ(trainer->finish_batch().logprobs.size(), 2u);
  }
  for (int i = 0; i < c.calls_after; ++i) call(c.calls_before + i);
  trainer->optim_step({.weight_decay = 0.1, .router_bias_rate = 1e-3});
  return trainer->state().masters();
}

TEST(WaitingGradients, AStepHasTheBitsOfOneWhoseGradientsStayedInMemory) {
  const WaitingFolder folder;
  const TrainerOptions plain{.accumulate = true}, mostly{.accumulate = true, .mostly_one_call = true, .share_prefixes = true};
  const WaitingCase cases[] = {
      {"a call that stands alone", mostly, 1, 0},
      {"one that is made once more when a second comes", mostly, 1, 1},
      {"accumulators of two", mostly, 2, 1},
      {"accumulators from the first on", plain, 1, 2},
      {"the middle of a batch", mostly, 0, 1, true},
      {"the middle of a second batch", mostly, 1, 0, true},
      {"one call, no accumulation", {}, 1, 0},
      {"micro-batches", {.micro_batch = 1, .accumulate = true}, 2, 1},
      {"two data-parallel ranks", {.accumulate = true, .ranks = {.dp = 2}}, 1, 1},
      {"two data-parallel ranks in a batch", {.accumulate = true, .ranks = {.dp = 2}}, 1, 1, true},
      {"two tensor-parallel ranks", {.accumulate = true, .mostly_one_call = true, .ranks = {.tp = 2}}, 1, 1},
  };
  for (const char* config : {kGlm, kLlama}) {
    const TrainBench bench(config);
    Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-bf16w"), 600);
    for (const WaitingCase& c : cases) {
      const WeightImages want = stepped(bench, runtime, c, {}), got = stepped(bench, runtime, c, folder.path);
      EXPECT_EQ(difference(bench.model->manifest(), got, want), "") << c.name;
      EXPECT_NE(difference(bench.model->manifest(), got, bench.masters), "") << c.name;  // it has moved at all
    }
  }
}

struct WaitingAdapter {
  TrainBench bench{kGlm};
  Runtime runtime{{.threads = 1}, bench.model, profile_by_name("cpu-bf16w"), 600};
  std::shared_ptr<FrozenBase> base = std::make_shared<FrozenBase>(
      runtime, make_weight_set(runtime.backend, bench.model->manifest(), bench.masters, runtime.profile, 0), TrainerOptions{.accumulate = true});
  std::shared_ptr<const AdapterLayout> layout = std::make_shared<const AdapterLayout>(bench.model->manifest(), AdapterSettings{.rank = 4});
  std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary, 1);
  std::unique_ptr<AdapterTrainer> fresh() { return std::make_unique<AdapterTrainer>(base, layout, initial_adapter(*layout, 1)); }
};

TEST(WaitingGradients, AnAdaptersToo) {
  const WaitingFolder folder;
  WaitingAdapter b;
  const auto run = [&](bool waits) {
    auto trainer = b.fresh();
    trainer->forward_backward(b.data, waiting_loss());
    if (waits) {
      trainer->save_gradients(folder.path);
      trainer = b.fresh();
      EXPECT_FALSE(trainer->has_gradients());
      trainer->load_gradients(folder.path);
    }
    trainer->forward_backward(b.data, waiting_loss());
    trainer->optim_step({.learning_rate = 1e-2});
    return trainer->state().masters();
  };
  EXPECT_EQ(difference(b.layout->manifest(), run(true), run(false)), "");
}

// The control: one bit of one accumulator is found, and the trainer has no gradient then.
TEST(WaitingGradients, AFlippedAccumulatorIsFound) {
  const WaitingFolder folder;
  WaitingAdapter b;
  auto trainer = b.fresh();
  trainer->forward_backward(b.data, waiting_loss());
  trainer->save_gradients(folder.path);
  const std::filesystem::path file = folder.path / "rank-0";
  std::string bytes = read_file(file, 1 << 30);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
  trainer = b.fresh();
  try {
    trainer->load_gradients(folder.path);
    FAIL() << "it was read";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::corrupt_file) << e.what();
  }
  EXPECT_FALSE(trainer->has_gradients());
  trainer->forward_backward(b.data, waiting_loss());  // and goes on
  trainer->optim_step({});
}

// A process that is killed, or refused the disk, while it writes newer ones.
TEST(WaitingGradients, AKillWhileTheyAreWrittenLeavesTheOnesBeforeOrTheNewOnes) {
  const WaitingFolder folder;
  WaitingAdapter b;
  auto trainer = b.fresh();
  trainer->forward_backward(b.data, waiting_loss());
  trainer->save_gradients(folder.path);
  const auto on_disk = [&] {
    auto reader = b.fresh();
    reader->load_gradients(folder.path);
    reader->optim_step({.learning_rate = 1e-2});
    return reader->state().master_hash();
  };
  const std::uint64_t before = on_disk();
  const auto write_newer = [&](const char* variable, const std::string& point) {
    return in_child([&] {
      setenv(variable, (point + ":1").c_str(), 1);
      trainer->forward_backward({sequences(b.bench.model->facts().vocabulary, 3)[2]}, waiting_loss());
      trainer->save_gradients(folder.path);
    });
  };
  for (const char* point : {"file.written", "file.renamed", "folder.written", "folder.synced"}) {
    const int killed = write_newer("LOCKSTEP_KILL_AT", point);
    EXPECT_TRUE(WIFSIGNALED(killed) && WTERMSIG(killed) == SIGKILL) << point;
    EXPECT_EQ(on_disk(), before) << point;
    const int full = write_newer("LOCKSTEP_FAIL_AT", point);
    EXPECT_TRUE(WIFEXITED(full) && WEXITSTATUS(full) == 3) << point;
    EXPECT_EQ(on_disk(), before) << point;
  }
  EXPECT_EQ(write_newer("LOCKSTEP_NO_SUCH", "x"), 0);
  const std::uint64_t after = on_disk();
  EXPECT_NE(after, before);
  trainer->save_gradients(folder.path);  // the ones before
  EXPECT_EQ(on_disk(), before);
  const int killed = write_newer("LOCKSTEP_KILL_AT", "folder.renamed");
  EXPECT_TRUE(WIFSIGNALED(killed));
  EXPECT_EQ(on_disk(), after);
}

}  // namespace
}  // namespace lockstep
