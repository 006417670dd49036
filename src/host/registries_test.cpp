#include <gtest/gtest.h>

#include <future>
#include <optional>

#include "host/training_test_tools.h"
#include "host/weight_cache.h"
#include "serving/on_executor.h"
#include "store/database.h"

namespace lockstep {
namespace {

// Whoever is at one model, and may be for as long as a disk takes, holds up nobody who asks for something else: not its own session's heartbeat either.
TEST(TrainingRegistries, WhoHoldsOneModelHoldsUpNobodyElse) {
  TrainingBench bench;
  const std::string session = bench.session(), one = bench.model(session, 0, 2), other = bench.model(session, 1, 2);
  const std::shared_ptr<HostedModel> model = bench.service->models().at("me", one);
  auto held = std::make_optional(model->state.lock());
  auto all = std::async(std::launch::async, [&] {
    TrainingService& service = *bench.service;
    service.session_life().hear("me", session);
    const std::string next = bench.session();
    EXPECT_EQ(service.sessions().all("me").size(), 2u);
    EXPECT_TRUE(service.checkpoints().all("me").empty());
    const std::string sampler = service.samplers().create("me", next, 0, "tiny", "");
    EXPECT_EQ(service.samplers().weights("me", sampler).weights, bench.base->weights);
    EXPECT_EQ(service.models().find("me", other).id, other);
    EXPECT_FALSE(bench.result(bench.batch(other, 1, training_batch(3, 2))).failed());
    EXPECT_FALSE(bench.model(next, 0, 2).empty());
    service.session_life().finish("me", next, "finished: success", "");
  });
  EXPECT_EQ(all.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  held.reset();
  all.wait();
  EXPECT_FALSE(bench.result(bench.batch(one, 1, training_batch(3, 2))).failed());
}

// Whatever writes a record waits while this lives, as for a disk that takes its time (up to five seconds, after which the write fails).
class SlowDisk {
 public:
  explicit SlowDisk(const TrainingBench& bench) : database_(bench.folder / "lockstep.db") { database_.execute("BEGIN IMMEDIATE;"); }
  ~SlowDisk() { database_.execute("ROLLBACK;"); }

 private:
  Database database_;
};

// Another key's cheap calls, over and over for a moment, while `under_way` waits for the disk.
void expect_nobody_waits(TrainingBench& bench, const std::string& session, const std::string& sampler, const std::function<bool()>& under_way) {
  TrainingService& service = *bench.service;
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(service.samplers().all("you", session).size(), 1u);
    EXPECT_EQ(service.samplers().weights("you", sampler).weights, bench.base->weights);
    EXPECT_TRUE(service.checkpoints().all("you").empty());
    EXPECT_EQ(service.sessions().find("you", session).id, session);
    EXPECT_TRUE(service.control().jobs.all("you").empty());
    std::promise<Generation> done;
    bench.generation->generate(
        {.prompt = {1, 2, 3}, .sampling = {.seed = 1, .max_tokens = 2}}, [](const GeneratedToken&) { return true; },
        [&](Generation&& generation) { done.set_value(std::move(generation)); });
    EXPECT_EQ(done.get_future().get().tokens.size(), 2u);
    ASSERT_TRUE(under_way()) << "in round " << i;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

template <class T>
bool is_open(const std::future<T>& future) {
  return future.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
}

TEST(TrainingRegistries, ASnapshotThatWaitsForTheDiskHoldsUpNobodyElse) {
  TrainingBench bench;
  Samplers& samplers = bench.service->samplers();
  const std::string own = bench.session(), model = bench.model(own, 0, 2);
  const std::string session = bench.session("you"), other = samplers.create("you", session, 0, "tiny", "");
  const Outcome made = bench.result(bench.service->operations().save_sampler("me", model, 1, false, [](const SamplerRecord& record) {
    return Outcome{"text/plain", record.id, {}, {}};
  }));
  ASSERT_FALSE(made.failed()) << made.message;
  const std::string& id = made.bytes;
  std::optional<SlowDisk> disk(bench);
  std::future<void> spilled = run_on(*bench.base->executor, WorkClass::training, [&](const OnExecutor& on) { samplers.spills().spill(on, 0); });
  expect_nobody_waits(bench, session, other, [&] { return is_open(spilled); });
  EXPECT_FALSE(samplers.find("me", id).spilled);  // it is said when it is so
  disk.reset();
  spilled.get();
  EXPECT_TRUE(samplers.find("me", id).spilled);
  EXPECT_TRUE(samplers.weights("me", id).adapter);  // from the disk

  disk.emplace(bench);
  std::future<std::string> created = std::async(std::launch::async, [&] { return samplers.create("me", own, 7, "tiny", ""); });
  expect_nobody_waits(bench, session, other, [&] { return is_open(created); });
  disk.reset();
  EXPECT_TRUE(samplers.contains(created.get()));
}

// Weights that are sampled, or saved, take the place of others, which go to disk: the device is nobody's meanwhile, and no request waits for it.
TEST(TrainingRegistries, WeightsThatGoToDiskForOthersHoldNoDevice) {
  const auto id_of = [](TrainingBench& bench, const std::string& request) {
    const Outcome made = bench.result(request);
    EXPECT_FALSE(made.failed()) << made.message;
    return made.bytes;
  };
  const auto snapshot = [&](TrainingBench& bench, const std::string& model, std::int64_t number) {
    return id_of(bench, bench.service->operations().save_sampler("me", model, number, false, [](const SamplerRecord& record) {
      return Outcome{"text/plain", record.id, {}, {}};
    }));
  };
  std::int64_t one = 0;
  {
    TrainingBench probe;
    one = bytes_of(probe.service->samplers().weights("me", snapshot(probe, probe.model(probe.session(), 0, 2), 1)));
  }
  for (const bool saved : {false, true}) {
    SCOPED_TRACE(saved ? "by weights that are saved" : "by weights that are read");
    TrainingBench bench({.sampler_bytes = one + one / 2});
    Samplers& samplers = bench.service->samplers();
    const std::string own = bench.session(), model = bench.model(own, 0, 2);
    const std::string session = bench.session("you"), other = samplers.create("you", session, 0, "tiny", "");
    const std::string first = snapshot(bench, model, 1);
    const std::string path =
        id_of(bench, bench.service->operations().save("me", model, 2, {.kind = "sampler_weights", .name = "kept"}, [](const CheckpointRecord& record) {
          return Outcome{"text/plain", record.path(), {}, {}};
        }));
    const auto bits = [&](const std::string& id) {
      const SamplerWeights weights = samplers.weights("me", id);
      return run_on(*bench.base->executor, WorkClass::training,
                    [&](const OnExecutor&) {
                      WeightImages images;
                      for (const Buffer& buffer : weights.adapter->parameters)
                        images.push_back(bench.base->opened.runtime->backend.stream().read(buffer.view()).get());
                      return images;
                    })
          .get();
    };
    const WeightImages before = bits(first);
    std::string second = samplers.create("me", own, 1, "", path);
    const auto on_disk = [&] { return samplers.find("me", first).spilled; };
    EXPECT_FALSE(on_disk());
    const std::filesystem::path written = bench.folder / "samplers" / folder_of_id(first);
    if (saved) {
      second = snapshot(bench, model, 3);
      for (int i = 0; i < 2000 && !on_disk(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    } else {
      std::optional<SlowDisk> disk(bench);
      EXPECT_TRUE(samplers.weights("me", second).adapter);
      expect_nobody_waits(bench, session, other, [&] { return !on_disk(); });
      for (const WorkClass work : {WorkClass::rollouts, WorkClass::training}) bench.base->executor->run(work, [] {}).get();
      EXPECT_FALSE(on_disk());
      disk.reset();
      for (int i = 0; i < 2000 && !on_disk(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_TRUE(on_disk());
    EXPECT_TRUE(std::filesystem::exists(written));
    EXPECT_TRUE(bits(first) == before);  // from the disk
  }
}

TEST(TrainingRegistries, ASessionAndAJobThatWaitForTheDiskHoldUpNobodyElse) {
  TrainingBench bench;
  const std::string session = bench.session("you"), other = bench.service->samplers().create("you", session, 0, "tiny", "");
  std::optional<SlowDisk> disk(bench);
  std::future<std::string> created = std::async(std::launch::async, [&] { return bench.session(); });
  expect_nobody_waits(bench, session, other, [&] { return is_open(created); });
  disk.reset();
  EXPECT_EQ(bench.service->sessions().find("me", created.get()).owner, "me");

  disk.emplace(bench);
  std::future<TrainerJob> changed =
      std::async(std::launch::async, [&] { return bench.service->control().jobs.change("me", "one", [](TrainerJob& job) { job.rank = 7; }); });
  expect_nobody_waits(bench, session, other, [&] { return is_open(changed); });
  EXPECT_FALSE(bench.service->control().jobs.find("me", "one"));  // before it is sure to stay
  disk.reset();
  EXPECT_EQ(changed.get().rank, 7);
  EXPECT_EQ(bench.service->control().jobs.find("me", "one")->rank, 7);
}

TEST(TrainingRegistries, ACheckpointThatWaitsForTheDiskHoldsUpNobodyElse) {
  TrainingBench bench;
  const std::string model = bench.model(bench.session(), 0, 2), session = bench.session("you");
  const std::string other = bench.service->samplers().create("you", session, 0, "tiny", "");
  Checkpoints& checkpoints = bench.service->checkpoints();
  std::optional<SlowDisk> disk(bench);
  const std::string request = bench.service->operations().save("me", model, 1, {.name = "kept"}, [](const CheckpointRecord& record) {
    return Outcome{"text/plain", record.path(), {}, {}};
  });
  std::future<Outcome> saved = std::async(std::launch::async, [&] { return bench.result(request); });
  expect_nobody_waits(bench, session, other, [&] { return is_open(saved); });
  EXPECT_TRUE(checkpoints.all("me").empty());  // before it is sure to stay
  disk.reset();
  const Outcome outcome = saved.get();
  ASSERT_FALSE(outcome.failed()) << outcome.message;
  EXPECT_TRUE(checkpoints.contains(outcome.bytes));

  disk.emplace(bench);
  std::future<void> changed = std::async(std::launch::async, [&] {
    checkpoints.change("me", outcome.bytes, [](CheckpointRecord& record) { record.is_public = true; });
    checkpoints.remove("me", outcome.bytes);
  });
  expect_nobody_waits(bench, session, other, [&] { return is_open(changed); });
  disk.reset();
  changed.get();
  EXPECT_FALSE(checkpoints.contains(outcome.bytes));
}

}  // namespace
}  // namespace lockstep
