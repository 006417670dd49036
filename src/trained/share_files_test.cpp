// A trainer whose ranks write their shares and read what another layout gives them goes on with the bits of one rank that was never stopped, over threads and
// over processes (a wire in memory), whole models and adapters, and what is written while it computes is the state of the last step.
#include "trained/share_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <optional>
#include <thread>

#include "checkpoint/json_file.h"
#include "parallel/memory_wire_test_tools.h"
#include "train/adapter_trainer.h"
#include "train/train_test_tools.h"
#include "train/trainer.h"
#include "trained/trained_model.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class ShareFilesTest : public testing::Test {
 protected:
  ShareFilesTest() { fs::create_directories(root_); }
  ~ShareFilesTest() override { fs::remove_all(root_); }
  fs::path folder_of(std::int64_t step) const { return root_ / checkpoint_name(step); }
  // What process 0 does between begin() and finish().
  template <class F>
  void save(Ranks& ranks, ShareFiles& files, const F& begin, std::int64_t step, const std::function<void()>& meanwhile = nullptr) const {
    std::optional<AtomicFolder> folder;
    if (ranks.process() == 0) folder.emplace(folder_of(step), AtomicFolder::Existing::replace);
    if (!ranks.all_here()) ranks.run([&](int local) { ranks.place(local).world->barrier(); });  // in a run process 0's call says so
    fs::path partial = folder_of(step);
    partial += ".lockstep.partial";
    begin(partial);
    if (meanwhile) meanwhile();
    const std::vector<ShareFileEnd> ends = files.finish(ranks);
    if (ranks.process() == 0) commit_shares(*folder, root_, {.step = step}, ranks.layout().text(), ends, {0});
    if (!ranks.all_here()) ranks.run([&](int local) { ranks.place(local).world->barrier(); });
  }
  std::string sum_of(std::int64_t step) const { return read_json_file(folder_of(step) / "state.json").at("state_sum").get<std::string>(); }
  fs::path root_ = fs::path(testing::TempDir()) / ("lockstep_share_files_" + std::to_string(::getpid()));
};

constexpr AdamParameters kAdamStep{.weight_decay = 0.1, .router_bias_rate = 1e-3};

std::vector<TrainSequence> short_ones(const TrainBench& bench) {
  std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary, 3);
  data.erase(data.begin() + 1);
  return data;
}

TEST_F(ShareFilesTest, WhatOneLayoutWroteGoesOnInAnyOther) {
  struct Stage {
    RankLayout layout;
    int processes = 1;
    bool file = false;  // the optimizer's state
    BackendKind backend = BackendKind::cpu;
  };
  struct Kind {
    const char *family, *profile, *optimizer;
  };
  const std::vector<Stage> stages{{{.dp = 2}},
                                  {{.tp = 3, .dp = 2}, 2},
                                  {{.ep = 2, .pp = 2}, 1, true},
                                  {{.dp = 2, .ep = 2, .rows = ReplicaRows::dealt}, 2},
                                  {{.dp = 3, .shard = RankShard::weights}, 3},
                                  {{.tp = 2, .dp = 2, .ep = 2, .shard = RankShard::weights}, 1, false, BackendKind::deferred},
                                  {{}}};
  for (const Kind& kind : {Kind{kLlama, "cpu-bf16w", "adamw"},
                           {kLlama, "cpu-bf16w", "dimuon"},
                           {kQwen, "cpu-f32", "adamw"},
                           {kQwen, "cpu-mxfp8", "adamw"},
                           {kGlm, "cpu-bf16w", "adamw"}}) {
    const Profile& profile = profile_by_name(kind.profile);
    const OptimizerFamily& optimizer = *optimizer_named(kind.optimizer);
    const TrainBench bench(kind.family);
    const Manifest& manifest = bench.model->manifest();
    const std::vector<TrainSequence> data = short_ones(bench);
    std::vector<TrainerState> wanted;
    Runtime whole({.threads = 1}, bench.model, profile, 600);
    Trainer undisturbed(whole, bench.masters, {.optimizer = optimizer});
    for (std::size_t i = 0; i < stages.size(); ++i) {
      undisturbed.forward_backward(data, {});
      undisturbed.optim_step(kAdamStep);
      wanted.push_back(undisturbed.state().all());
    }
    for (std::size_t i = 0; i < stages.size(); ++i) {
      const auto step = static_cast<std::int64_t>(i) + 1;
      const auto part = [&](std::unique_ptr<Ranks> ranks) {
        const RankLayout& layout = stages[i].layout;
        Runtime runtime({.kind = stages[i].backend, .threads = 1}, bench.model, profile, 600);
        const auto runtimes = std::make_shared<RankRuntimes>(runtime, layout, std::move(ranks));
        TrainerOptions options{.optimizer = optimizer, .ranks = layout};
        if (stages[i].file) options.optimizer_folder = root_.string();
        Trainer trainer(runtime, bench.masters, options, runtimes);
        if (i > 0) trainer.restore(share_reader(folder_of(step - 1), manifest, step - 1), step - 1);
        EXPECT_EQ(trainer.step(), step - 1);
        trainer.forward_backward(data, {});
        trainer.optim_step(kAdamStep);
        ShareFiles files;
        const auto begin = [&](const fs::path& folder) {
          files.begin([&](const auto& work) { trainer.each_share(work); }, runtimes->ranks(), manifest, folder);
        };
        // While the trainer computes the next gradient.
        save(runtimes->ranks(), files, begin, step, [&] { trainer.forward_backward(data, {}); });
      };
      if (stages[i].processes == 1) part(nullptr);
      else as_processes(stages[i].processes, [&](ProcessMail& mail) { part(std::make_unique<ProcessRanks>(stages[i].layout, mail)); });
      SCOPED_TRACE(fmt::format("{} under {} by {}, written by {}", bench.model->family(), profile.name, optimizer.name, stages[i].layout.text()));
      const TrainingCheckpoint got = load_checkpoint(folder_of(step), manifest);
      EXPECT_EQ(difference(manifest, got.masters, wanted[i].masters), "") << "masters";
      EXPECT_EQ(difference(manifest, got.first_moments, wanted[i].first_moments), "") << "first moments";
      EXPECT_EQ(difference(manifest, got.second_moments, wanted[i].second_moments), "") << "second moments";
      if (i == 0) continue;
      EXPECT_NE(difference(manifest, got.masters, wanted[i - 1].masters), "");  // the control
    }
  }
}

// The same state has one sum, whichever layout writes it; another step has another.
TEST_F(ShareFilesTest, TheSumOfAStateDoesNotDependOnTheLayout) {
  const TrainBench bench(kGlm);
  const Manifest& manifest = bench.model->manifest();
  const std::vector<TrainSequence> data = short_ones(bench);
  std::vector<std::string> sums;
  for (const RankLayout& layout : {RankLayout{}, {.dp = 3}, {.tp = 2, .ep = 2}, {.dp = 2, .pp = 2}, {.dp = 2, .shard = RankShard::weights}}) {
    Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-bf16w"), 600);
    const auto runtimes = std::make_shared<RankRuntimes>(runtime, layout);
    Trainer trainer(runtime, bench.masters, {.ranks = layout}, runtimes);
    for (std::int64_t step = 1; step <= 2; ++step) {
      trainer.forward_backward(data, {});
      trainer.optim_step(kAdamStep);
      ShareFiles files;
      save(
          runtimes->ranks(), files,
          [&](const fs::path& folder) { files.begin([&](const auto& work) { trainer.each_share(work); }, runtimes->ranks(), manifest, folder); }, step);
    }
    sums.push_back(sum_of(1));
    EXPECT_EQ(sums.back(), sums.front()) << layout.text();
    EXPECT_NE(sum_of(2), sum_of(1)) << layout.text();
  }
}

TEST_F(ShareFilesTest, AnAdapterGoesOnInAnyOther) {
  const TrainBench bench(kQwen);
  const std::vector<TrainSequence> data = short_ones(bench);
  const auto layout = std::make_shared<const AdapterLayout>(bench.model->manifest(), AdapterSettings{.rank = 4});
  const Manifest& manifest = layout->manifest();
  const auto take_steps = [&](const RankLayout& ranks, int steps, std::int64_t from, std::int64_t to) {
    Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-bf16w"), 600);
    const auto weights = make_weight_set(runtime.backend, bench.model->manifest(), bench.masters, runtime.profile, 0);
    const auto base = std::make_shared<FrozenBase>(runtime, weights, TrainerOptions{.ranks = ranks});
    AdapterTrainer trainer(base, layout, initial_adapter(*layout, 1));
    if (from > 0) trainer.restore(share_reader(folder_of(from), manifest, from), from);
    for (int step = 0; step < steps; ++step) {
      trainer.forward_backward(data, {});
      trainer.optim_step({.learning_rate = 1e-2});
    }
    ShareFiles files;
    save(
        base->ranks(), files,
        [&](const fs::path& folder) { files.begin([&](const auto& work) { trainer.each_share(work); }, base->ranks(), manifest, folder); }, to);
    return trainer.state().all();
  };
  const TrainerState whole = take_steps({}, 3, 0, 3);
  const std::string sum = sum_of(3);
  take_steps({.tp = 2, .dp = 2}, 1, 0, 1);
  take_steps({.dp = 3}, 1, 1, 2);
  const TrainerState got = take_steps({.tp = 3}, 1, 2, 3);
  EXPECT_EQ(difference(manifest, got.masters, whole.masters), "");
  EXPECT_EQ(difference(manifest, got.second_moments, whole.second_moments), "");
  EXPECT_EQ(sum_of(3), sum);
  EXPECT_NE(sum_of(2), sum);
}

// Of the masters a rank reads its share of the model, of the moments its rows, and nothing else: far from the whole state.
TEST_F(ShareFilesTest, NoRankReadsTheWhole) {
  const TrainBench bench(kLlama);
  const Manifest& manifest = bench.model->manifest();
  {
    const RankLayout layout{.dp = 4};
    Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-bf16w"), 600);
    const auto runtimes = std::make_shared<RankRuntimes>(runtime, layout);
    Trainer trainer(runtime, bench.masters, {.ranks = layout}, runtimes);
    ShareFiles files;
    const auto begin = [&](const fs::path& folder) { files.begin([&](const auto& work) { trainer.each_share(work); }, runtimes->ranks(), manifest, folder); };
    std::vector<std::int64_t> held;
    for (int rank = 0; rank < layout.size(); ++rank) held.push_back(trainer.ranks().memory(rank).peak_of_all());
    save(runtimes->ranks(), files, begin, 0);
    for (int rank = 0; rank < layout.size(); ++rank) EXPECT_EQ(trainer.ranks().memory(rank).peak_of_all(), held[static_cast<std::size_t>(rank)]);  // no copy
    std::uint64_t most = 0, all = 0;
    for (int rank = 0; rank < layout.size(); ++rank) {
      const std::uint64_t bytes = fs::file_size(folder_of(0) / share_file_name(rank));
      most = std::max(most, bytes), all += bytes;
    }
    EXPECT_LT(most, all * 3 / 8);  // no file much more than a quarter
  }
  std::int64_t masters = 0;
  for (const Parameter& p : manifest.parameters()) masters += p.size() * 4;
  for (const RankLayout& layout : {RankLayout{.dp = 4}, {.dp = 4, .shard = RankShard::weights}, {.tp = 4}}) {
    Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-bf16w"), 600);
    Trainer trainer(runtime, bench.masters, {.ranks = layout});
    std::vector<std::int64_t> asked(static_cast<std::size_t>(layout.size()));  // bytes of the rows that each rank asks for
    const auto counted = [&](StateShare& share) -> StateReader {
      return [read = share_reader(folder_of(0), manifest, 1)(share), share, &own = asked[static_cast<std::size_t>(share.rank())]](
                 StatePart part, std::size_t i, bool rows) -> const std::vector<float>& {
        own += share.place(i, rows).size() * 4;
        return read(part, i, rows);
      };
    };
    trainer.restore(counted, 0);
    const std::int64_t most = *std::max_element(asked.begin(), asked.end());
    // Compute copies are whole on every replica unless weights are in shares: then the masters are read whole.
    EXPECT_LT(most, layout.shards_weights() || layout.tp > 1 ? masters * 3 * 2 / 5 : masters * 3 * 3 / 5) << layout.text();
    EXPECT_GT(most, masters / 2) << layout.text();
  }
}

// A step that begins while a rank still writes waits for it. What rank 0 writes goes to a pipe that nobody reads at first.
TEST_F(ShareFilesTest, AStepWaitsUntilWhatItChangesIsWritten) {
  const TrainBench bench(kQwen);
  TrainedBase base;
  base.opened.model = bench.model;
  base.opened.initial = [&] { return bench.masters; };
  base.opened.runtime = std::make_shared<Runtime>(BackendOptions{.threads = 1}, bench.model, profile_by_name("cpu-bf16w"), 600);
  base.options.ranks = {.dp = 2};
  base.weights = serving_model(base.opened).weights;
  const std::vector<TrainSequence> data = short_ones(bench);
  for (const TrainedSettings& settings : {TrainedSettings{}, TrainedSettings{.rank = 4, .seed = 1}}) {
    const auto model = make_trained_model(base, settings);
    model->forward_backward(data, {});
    model->optim_step(kAdamStep);
    model->forward_backward(data, {});
    const fs::path folder = root_ / fmt::format("piped-{}", settings.rank);
    fs::create_directories(folder);
    const fs::path pipe = folder / (share_file_name(0) + ".lockstep.partial");
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    std::atomic<bool> opened = false;
    std::thread reader([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      opened = true;
      std::ifstream in(pipe, std::ios::binary);
      std::string rest;
      while (std::getline(in, rest)) {
      }
    });
    model->shares().begin(folder);
    EXPECT_FALSE(opened.load());  // the model goes on
    model->optim_step(kAdamStep);
    EXPECT_TRUE(opened.load());
    reader.join();
    EXPECT_THROW(model->shares().finish(), Error);  // a pipe cannot be synced
    EXPECT_TRUE(fs::exists(folder / share_file_name(1)));
  }
}

// A rank that cannot write is an error of the call that waits, in every process; the trainer goes on, and saves again.
TEST_F(ShareFilesTest, ARankThatCannotWriteIsAnErrorForAll) {
  const TrainBench bench(kLlama);
  const Manifest& manifest = bench.model->manifest();
  const std::vector<TrainSequence> data = short_ones(bench);
  for (const int processes : {1, 2}) {
    std::atomic<int> told = 0;
    const auto part = [&](std::unique_ptr<Ranks> ranks) {
      const RankLayout layout{.dp = 2};
      Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-bf16w"), 600);
      const auto runtimes = std::make_shared<RankRuntimes>(runtime, layout, std::move(ranks));
      Trainer trainer(runtime, bench.masters, {.ranks = layout}, runtimes);
      ShareFiles files;
      const auto begin = [&](const fs::path& folder) { files.begin([&](const auto& work) { trainer.each_share(work); }, runtimes->ranks(), manifest, folder); };
      const fs::path own = root_ / "two";
      const bool here = runtimes->ranks().all_here() || runtimes->ranks().process() == 0;
      fs::create_directories(own);
      begin(here && processes == 2 ? own : root_ / "nowhere");  // of two processes the second one has no such folder
      try {
        files.finish(runtimes->ranks());
      } catch (const Error& e) {
        ++told;
        EXPECT_EQ(e.code(), ErrorCode::not_found) << e.what();
        EXPECT_NE(std::string(e.what()).find("nowhere"), std::string::npos) << e.what();
      }
      trainer.forward_backward(data, {});
      trainer.optim_step(kAdamStep);
      save(runtimes->ranks(), files, begin, 1);
    };
    if (processes == 1) part(nullptr);
    else as_processes(processes, [&](ProcessMail& mail) { part(std::make_unique<ProcessRanks>(RankLayout{.dp = 2}, mail)); });
    EXPECT_EQ(told.load(), processes);
    EXPECT_EQ(load_checkpoint(folder_of(1), manifest).step, 1);
    fs::remove_all(folder_of(1));
  }
}

}  // namespace
}  // namespace lockstep
