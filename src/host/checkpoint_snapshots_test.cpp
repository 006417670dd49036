// Samplers' checkpoints of a server that publishes are snapshots of its store, and nothing else: what samples, promotes, copies and trains from them has the
// values of the compute copy, also after a restart; whoever is gone holds nothing; training goes on while the store is waited for.
#include <gtest/gtest.h>

#include <condition_variable>
#include <optional>

#include "checkpoint/model_folder.h"
#include "host/training_test_tools.h"
#include "serving/on_executor.h"

namespace lockstep {
namespace {

WeightImages images_of(TrainingBench& bench, const std::vector<Buffer>& parameters) {
  return run_on(*bench.base->executor, WorkClass::training,
                [&](const OnExecutor&) {
                  WeightImages images;
                  for (const Buffer& buffer : parameters) images.push_back(bench.base->opened.runtime->backend.stream().read(buffer.view()).get());
                  return images;
                })
      .get();
}
WeightImages images_of(TrainingBench& bench, const SamplerWeights& weights) {
  return images_of(bench, weights.adapter ? weights.adapter->parameters : weights.weights->parameters);
}

bool is_noted(const std::filesystem::path& folder, const std::string& channel) {
  bool found = false;
  TrainingStore(folder).each("held", [&](const std::string& name, const std::string&) { found |= name == channel; });
  return found;
}

// A store in memory. While it is shut, save waits; with a fault it fails.
class SnapshotsInMemory : public SnapshotPort {
 public:
  TrainingBench* bench = nullptr;

  SavedSnapshot save(const std::shared_ptr<const WeightSet>& weights, const std::shared_ptr<const AdapterWeights>& adapter, const std::string& name,
                     const Note& note) override {
    {
      std::unique_lock lock(mutex_);
      ++asked_;
      changed_.notify_all();
      changed_.wait(lock, [&] { return !shut_; });
      if (!fault_.empty()) fail(ErrorCode::io, "{}", fault_);
    }
    WeightImages images = images_of(*bench, adapter ? adapter->parameters : weights->parameters);
    std::string id;
    {
      const std::lock_guard lock(mutex_);
      id = fmt::format("snapshot-{}", ++made_);
      snapshots_[id] = std::move(images);
    }
    const std::string channel = hold(id, name, note);
    const std::lock_guard lock(mutex_);
    if (!late_fault_.empty()) fail(ErrorCode::io, "{}", late_fault_);
    return {id, channel, 77};
  }
  void tidy() override {}
  std::string hold(const std::string& id, const std::string& name, const Note& note) override {
    std::string channel = name;
    {
      const std::lock_guard lock(mutex_);
      if (channels_.contains(name)) channel = fmt::format("held-{}", ++made_);
    }
    note(channel, id);
    if (bench->service) {
      EXPECT_TRUE(is_noted(bench->folder, channel)) << "what would be released after a kill at this moment";
    }
    const std::lock_guard lock(mutex_);
    channels_[channel] = id;
    return channel;
  }
  void release(const std::string& channel, const std::string& id) override {
    const std::lock_guard lock(mutex_);
    if (const auto found = channels_.find(channel); found != channels_.end() && found->second == id) channels_.erase(found);
    changed_.notify_all();
  }
  WeightImages read(const std::string& id, const Manifest& manifest) const override {
    const std::lock_guard lock(mutex_);
    ++reads_;
    const WeightImages& images = snapshots_.at(id);
    EXPECT_EQ(images.size(), manifest.parameters().size());
    return images;
  }

  std::map<std::string, std::string> channels() const {
    const std::lock_guard lock(mutex_);
    return channels_;
  }
  int reads() const {
    const std::lock_guard lock(mutex_);
    return reads_;
  }
  void shut(bool is_shut) {
    const std::lock_guard lock(mutex_);
    shut_ = is_shut;
    changed_.notify_all();
  }
  // `late`: it is found when the channel is there.
  void set_fault(const std::string& fault, const std::string& late = {}) {
    const std::lock_guard lock(mutex_);
    fault_ = fault;
    late_fault_ = late;
  }
  bool wait_asked(int times) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return asked_ >= times; });
  }
  bool wait_channels(const std::map<std::string, std::string>& wanted) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return channels_ == wanted; });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, WeightImages> snapshots_;
  std::map<std::string, std::string> channels_;
  std::string fault_, late_fault_;
  bool shut_ = false;
  int asked_ = 0, made_ = 0;
  mutable int reads_ = 0;
};

class SnapshotCheckpoints : public testing::TestWithParam<std::int64_t> {
 protected:
  SnapshotCheckpoints() {
    store->bench = &bench;
    bench.base->folder = bench.folder.string();  // without a tokenizer
  }
  std::string saved(const std::string& model, std::int64_t number, const std::string& name, bool overwrite = false) {
    return bench.service->operations().save("me", model, number, {.kind = "sampler_weights", .name = name, .overwrite = overwrite},
                                            [](const CheckpointRecord& record) {
                                              return Outcome{"text/plain", record.path(), {}, {}};
                                            });
  }
  std::string path_of(const std::string& request) {
    const Outcome outcome = bench.result(request);
    EXPECT_FALSE(outcome.failed()) << outcome.message;
    return outcome.bytes;
  }
  // A gradient and a step, of two numbers.
  void trained(const std::string& model, std::int64_t number) {
    EXPECT_FALSE(bench.result(bench.batch(model, number, training_batch(static_cast<std::uint64_t>(number), 2))).failed());
    EXPECT_FALSE(bench.result(bench.step(model, number + 1)).failed());
  }
  // What a model samples with now, of the number.
  WeightImages now(const std::string& model, std::int64_t number) {
    const Outcome made = bench.result(bench.service->operations().save_sampler("me", model, number, false, [](const SamplerRecord& record) {
      return Outcome{"text/plain", record.id, {}, {}};
    }));
    EXPECT_FALSE(made.failed()) << made.message;
    return images_of(bench, bench.service->samplers().weights("me", made.bytes));
  }
  WeightImages sampled(const std::string& path, const std::string& session, std::int64_t number) {
    return images_of(bench, bench.service->samplers().weights("me", bench.service->samplers().create("me", session, number, "", path)));
  }
  void restart() {
    const TrainingServiceOptions options = bench.service->options();
    bench.service.reset();
    bench.service = std::make_shared<TrainingService>(bench.base, bench.generation, options);
  }
  std::shared_ptr<SnapshotsInMemory> store = std::make_shared<SnapshotsInMemory>();
  TrainingBench bench{{.snapshots = store}};
};

TEST_P(SnapshotCheckpoints, HaveTheValuesOfTheComputeCopyWhoeverReadsThem) {
  const std::string session = bench.session(), model = bench.model(session, 0, GetParam());
  trained(model, 1);
  const std::string path = path_of(saved(model, 3, "one"));
  const WeightImages then = now(model, 4);
  const CheckpointRecord record = bench.service->checkpoints().find("me", path);
  EXPECT_EQ(record.snapshot, "snapshot-1");
  EXPECT_EQ(record.bytes, 77);
  EXPECT_EQ(store->channels(), (std::map<std::string, std::string>{{"one", "snapshot-1"}}));
  EXPECT_FALSE(std::filesystem::exists(bench.folder / "checkpoints")) << "nothing of it is a file";
  trained(model, 5);
  EXPECT_TRUE(now(model, 7) != then) << "a step is seen";
  EXPECT_TRUE(sampled(path, session, 0) == then);
  EXPECT_EQ(store->reads(), 0) << "what was just saved is in memory";

  restart();
  EXPECT_TRUE(sampled(path, session, 1) == then);
  EXPECT_TRUE(sampled(path, session, 2) == then);
  EXPECT_EQ(store->reads(), 1) << "samplers share what was read";
  // A model that begins with it, and one that is made of what was promoted, sample with the same bits.
  CreateModel wanted{.session = session, .number = 7};
  wanted.settings.base_model = "tiny";
  wanted.settings.rank = GetParam();
  wanted.from = path;
  const Outcome begun = bench.result(bench.service->model_life().create("me", wanted, [](const ModelRecord& r) {
    return Outcome{"text/plain", r.id, {}, {}};
  }));
  ASSERT_FALSE(begun.failed()) << begun.message;
  EXPECT_TRUE(now(begun.bytes, 1) == then);
  const PromotedModel promoted = bench.service->control().promote("me", path, "accounts/local/models/lasting", "");
  EXPECT_TRUE(images_of(bench, bench.service->control().weights("me", promoted.name)) == then);
  if (GetParam() == 0) {
    EXPECT_TRUE(load_model_folder(bench.folder / promoted.folder).masters == then) << "its files have these values, in fp32";
  }
}

TEST_P(SnapshotCheckpoints, HoldNothingOnceTheyAreGone) {
  const std::string session = bench.session(), model = bench.model(session, 0, GetParam());
  Checkpoints& checkpoints = bench.service->checkpoints();
  const std::string one = path_of(saved(model, 1, "one")), two = path_of(saved(model, 2, "two"));
  const WeightImages then = sampled(one, session, 0);
  const std::string copy = checkpoints.copy("me", {.source = one});
  const std::string held = checkpoints.find("me", copy).channel;
  EXPECT_EQ(store->channels(), (std::map<std::string, std::string>{{"one", "snapshot-1"}, {"two", "snapshot-2"}, {held, "snapshot-1"}}));
  checkpoints.remove("me", one);
  EXPECT_TRUE(store->wait_channels({{"two", "snapshot-2"}, {held, "snapshot-1"}}));
  EXPECT_TRUE(sampled(copy, session, 1) == then) << "a copy outlives its source";
  checkpoints.change("me", copy, [](CheckpointRecord& r) { r.expires = unix_now() - 1; });
  EXPECT_EQ(checkpoints.all("me").size(), 1u);
  EXPECT_TRUE(store->wait_channels({{"two", "snapshot-2"}})) << "one that has expired";
}

TEST_P(SnapshotCheckpoints, OneThatIsOverwrittenHasItsNameAtOnce) {
  const std::string session = bench.session(), model = bench.model(session, 0, GetParam()), other = bench.model(session, 1, GetParam());
  const std::string path = path_of(saved(model, 1, "one"));
  const WeightImages first = sampled(path, session, 0);
  // Another model's of the same name has a name made up.
  const std::string others = path_of(saved(other, 1, "one"));
  const std::string held = bench.service->checkpoints().find("me", others).channel;
  EXPECT_TRUE(held.starts_with("held-")) << held;
  trained(model, 2);
  const Outcome refused = bench.result(saved(model, 4, "one"));
  EXPECT_TRUE(refused.failed() && refused.message.find("exists already") != std::string::npos) << refused.message;
  EXPECT_EQ(path_of(saved(model, 5, "one", true)), path);
  const CheckpointRecord now_there = bench.service->checkpoints().find("me", path);
  EXPECT_EQ(now_there.channel, "one");
  EXPECT_TRUE(store->wait_channels({{"one", now_there.snapshot}, {held, "snapshot-2"}}));
  EXPECT_TRUE(sampled(path, session, 1) == now(model, 6));
  EXPECT_TRUE(sampled(path, session, 2) != first);
}

TEST_P(SnapshotCheckpoints, TrainingGoesOnWhileTheStoreIsWaitedFor) {
  const std::string session = bench.session(), model = bench.model(session, 0, GetParam());
  trained(model, 1);
  store->shut(true);
  const std::string request = saved(model, 3, "one");
  ASSERT_TRUE(store->wait_asked(1));
  const WeightImages then = now(model, 4);
  trained(model, 5);  // while it waits
  EXPECT_FALSE(bench.service->futures().done(request));
  EXPECT_TRUE(bench.service->checkpoints().all("me").empty()) << "nobody sees what is not there";
  const Outcome again = bench.result(saved(model, 7, "one"));
  EXPECT_TRUE(again.failed() && again.message.find("exists already") != std::string::npos) << again.message;
  store->shut(false);
  const std::string path = path_of(request);
  restart();
  EXPECT_TRUE(sampled(path, session, 0) == then) << "of the weights at its own time";
}

TEST_P(SnapshotCheckpoints, AFaultOfTheStoreIsTheOperationsError) {
  const std::string session = bench.session(), model = bench.model(session, 0, GetParam());
  store->set_fault("the store's disk is full");
  const Outcome failed = bench.result(saved(model, 1, "one"));
  EXPECT_TRUE(failed.failed() && failed.message.find("disk is full") != std::string::npos) << failed.message;
  EXPECT_TRUE(bench.service->checkpoints().all("me").empty());
  EXPECT_TRUE(store->channels().empty());
  store->set_fault("", "the connection broke");
  EXPECT_TRUE(bench.result(saved(model, 2, "one")).failed());
  EXPECT_TRUE(store->wait_channels({})) << "what was written of it";
  store->set_fault("");
  EXPECT_FALSE(path_of(saved(model, 3, "one")).empty()) << "its name is free";
}

TEST_P(SnapshotCheckpoints, AServerThatStopsFinishesThemAndOneThatStartsReleasesWhatNobodyHas) {
  const std::string session = bench.session(), model = bench.model(session, 0, GetParam());
  store->shut(true);
  const std::string request = saved(model, 1, "one");
  ASSERT_TRUE(store->wait_asked(1));
  std::thread opens([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    store->shut(false);
  });
  restart();
  opens.join();
  const std::string path = path_of(request);
  const CheckpointRecord record = bench.service->checkpoints().find("me", path);
  // What a kill between a channel and its checkpoint leaves.
  const TrainingServiceOptions options = bench.service->options();
  bench.service.reset();
  TrainingStore(options.state).put("held", "left", R"({"snapshot":"snapshot-1"})");
  store->hold("snapshot-1", "left", [](const std::string&, const std::string&) {});
  store->hold("snapshot-1", "somebody-elses", [](const std::string&, const std::string&) {});
  bench.service = std::make_shared<TrainingService>(bench.base, bench.generation, options);
  EXPECT_TRUE(store->wait_channels({{"one", record.snapshot}, {"somebody-elses", "snapshot-1"}}));
}

TEST_P(SnapshotCheckpoints, CountWithinTheLimitsWhileTheyAreMade) {
  bench.service.reset();
  TrainingServiceOptions options{.state = bench.folder, .max_checkpoints = 2, .key_share = 100, .snapshots = store};
  bench.service = std::make_shared<TrainingService>(bench.base, bench.generation, options);
  const std::string session = bench.session(), model = bench.model(session, 0, GetParam());
  store->shut(true);
  const std::string one = saved(model, 1, "one"), two = saved(model, 2, "two");
  ASSERT_TRUE(store->wait_asked(1));
  const Outcome refused = bench.result(saved(model, 3, "three"));
  EXPECT_TRUE(refused.failed() && refused.message.find("checkpoints") != std::string::npos) << refused.message;
  store->shut(false);
  path_of(one), path_of(two);
}

INSTANTIATE_TEST_SUITE_P(Ranks, SnapshotCheckpoints, testing::Values(0, 4), [](const auto& one) { return one.param == 0 ? "weights" : "adapter"; });

// A server that is started without its store says so of each, and serves all else.
TEST(SnapshotCheckpointsAlone, NeedTheStore) {
  const auto store = std::make_shared<SnapshotsInMemory>();
  TrainingBench bench({.snapshots = store});
  store->bench = &bench;
  const std::string session = bench.session(), model = bench.model(session, 0, 4);
  const Outcome made = bench.result(bench.service->operations().save("me", model, 1, {.kind = "sampler_weights", .name = "one"}, [](const CheckpointRecord& r) {
    return Outcome{"text/plain", r.path(), {}, {}};
  }));
  ASSERT_FALSE(made.failed()) << made.message;
  TrainingServiceOptions options = bench.service->options();
  options.snapshots = nullptr;
  bench.service.reset();
  bench.service = std::make_shared<TrainingService>(bench.base, bench.generation, options);
  Samplers& samplers = bench.service->samplers();
  const std::string why = error_text([&] { samplers.weights("me", samplers.create("me", session, 0, "", made.bytes)); });
  EXPECT_NE(why.find("--publish"), std::string::npos) << why;
  EXPECT_EQ(samplers.weights("me", samplers.create("me", session, 1, "tiny", "")).weights, bench.base->weights);
}

}  // namespace
}  // namespace lockstep
