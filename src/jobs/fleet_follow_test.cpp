// A trainer publishes, replicas with runtimes of their own follow (fleet_ways_test.cpp: with which bits). Requests in flight go on as they were told. What
// is damaged, missing or late changes nothing.
#include <gtest/gtest.h>
#include <unistd.h>

#include <utility>

#include "base/error.h"
#include "fleet/channel_fleet.h"
#include "jobs/fleet_test_tools.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class FleetFollow : public testing::Test {
 protected:
  ~FleetFollow() override { fs::remove_all(root_); }
  fs::path root_ = fs::path(testing::TempDir()) / fmt::format("lockstep_fleet_{}", ::getpid());
  std::string store_ = root_.string();
};
class FleetSwap : public FleetFollow {};
class FleetTrouble : public FleetFollow {};

TEST_F(FleetSwap, AReplicaWithOtherWeightsTakesTheWholeChain) {
  FleetTrainer trainer(kDenseModel, store_);
  trainer.publish();
  std::uint64_t last = 0;
  for (int step = 0; step < 3; ++step) {
    trainer.step();
    last = trainer.publish().sequence;
  }
  const FleetReplicaUnderTest late(kDenseModel, store_, "late", {}, 99);
  ASSERT_TRUE(late.reaches(last)) << late.follower->record().error;
  EXPECT_EQ(different_scores(late.scores(), trainer.scores()), 0);
}

// --- requests in flight
struct Told {
  Request request;
  Generation generation;
};

Request fleet_request(std::int32_t i) {
  return {.prompt = {1, 2 + i % 5, 3, 4 + i % 7}, .sampling = {.temperature = 1, .seed = 11, .max_tokens = 110, .sample_index = i}};
}

std::string bits_of(const GeneratedToken& t) {
  return fmt::format("{}:{:08x}:{:08x}", t.id, std::bit_cast<std::uint32_t>(t.raw_logprob), std::bit_cast<std::uint32_t>(t.sampling_logprob));
}

using VersionSets = std::map<std::uint64_t, std::shared_ptr<const WeightSet>>;

// Runs requests while snapshots, which stand in the store already, are swapped under them. `sets`: what fresh requests under each version compute with.
std::vector<Told> told_during_swaps(FleetTrainer& trainer, const FleetReplicaUnderTest& replica, VersionSets& sets) {
  const auto store = open_store(trainer.publisher.store().label());
  std::vector<std::string> ids;
  for (std::uint64_t swap = 1; swap <= 3; ++swap) {
    trainer.step();
    ids.push_back(trainer.publish("s" + std::to_string(swap)).written.id);
    const WeightImages masters = trainer.trainer.with_model([](TrainedModel& model) { return model.master_images(); });
    sets[1 + swap] = replica.executor
                         ->run(WorkClass::live,
                               [&] {
                                 const Runtime& runtime = *replica.opened.runtime;
                                 return make_weight_set(replica.opened.runtime->backend, runtime.model->manifest(), masters, runtime.profile, 1 + swap);
                               })
                         .get();
  }
  std::vector<Told> all(16);
  std::vector<std::future<Generation>> futures;
  std::atomic<int> tokens{0};
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].request = fleet_request(static_cast<std::int32_t>(i));
    const auto done = std::make_shared<std::promise<Generation>>();
    futures.push_back(done->get_future());
    replica.service->generate(
        all[i].request,
        [&](const GeneratedToken&) {
          ++tokens;
          std::this_thread::sleep_for(std::chrono::milliseconds(1));  // so that several swaps come to pass
          return true;
        },
        [done](Generation&& g) { done->set_value(std::move(g)); });
  }
  for (std::size_t swap = 0; swap < ids.size(); ++swap) {
    const int before = tokens;
    while (tokens < before + 60 && tokens < 1200) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const Channel now = move_channel(*store, "chat", ids[swap]);
    EXPECT_EQ(now.sequence, 2 + swap);
    EXPECT_TRUE(replica.reaches(now.sequence)) << replica.follower->record().error;
  }
  for (std::size_t i = 0; i < all.size(); ++i) all[i].generation = futures[i].get();
  return all;
}

struct SwapSeen {
  std::size_t answers_of_two_versions = 0, mixed = 0, different = 0;
};
// Each run of tokens of one version against a fresh request that begins with all before it.
SwapSeen compare_with_fresh(const FleetReplicaUnderTest& replica, const std::vector<Told>& all, const VersionSets& sets) {
  SwapSeen seen;
  for (const Told& one : all) {
    EXPECT_EQ(one.generation.tokens.size(), 110) << one.generation.error;
    const auto& tokens = one.generation.tokens;
    bool two = false;
    for (std::size_t begin = 0; begin < tokens.size();) {
      std::size_t end = begin;
      while (end < tokens.size() && tokens[end].weights_version == tokens[begin].weights_version) ++end;
      Request fresh = one.request;
      for (std::size_t i = 0; i < begin; ++i) fresh.prompt.push_back(tokens[i].id);
      fresh.sampling.max_tokens = static_cast<std::int32_t>(end - begin);
      fresh.weights = sets.at(tokens[begin].weights_version);
      const Generation again = replica.run(std::move(fresh));
      for (std::size_t i = begin; i < end; ++i) {
        const bool equal = i - begin < again.tokens.size() && bits_of(again.tokens[i - begin]) == bits_of(tokens[i]);
        seen.mixed += tokens[i].mixed;
        seen.different += !equal;
        EXPECT_TRUE(equal || tokens[i].mixed) << "token " << i << " differs and is not marked";
        // Mixed are those of a version that came while the request had keys and values of an older one.
        EXPECT_EQ(tokens[i].mixed, begin > 0 && tokens[begin].mixed);
      }
      two = two || begin > 0;
      begin = end;
    }
    seen.answers_of_two_versions += two;
  }
  return seen;
}

class FleetInFlight : public testing::TestWithParam<std::pair<InFlight, SwapMemory>> {
 protected:
  ~FleetInFlight() override { fs::remove_all(root_); }
  fs::path root_ = fs::path(testing::TempDir()) / fmt::format("lockstep_flight_{}", ::getpid());
};

TEST_P(FleetInFlight, RequestsGoOnAsTheyWereTold) {
  const auto [in_flight, memory] = GetParam();
  FleetTrainer trainer(kMoe, root_.string());
  const FleetReplicaUnderTest replica(kMoe, root_.string(), "r", {.memory = memory, .in_flight = in_flight});
  VersionSets sets;
  const std::uint64_t first = trainer.publish().sequence;
  ASSERT_EQ(first, 1);
  ASSERT_TRUE(replica.reaches(first));
  sets[first] = replica.executor->run(WorkClass::live, [&] { return replica.opened.weight_set(first); }).get();
  const std::vector<Told> all = told_during_swaps(trainer, replica, sets);
  const SwapSeen seen = compare_with_fresh(replica, all, sets);
  if (in_flight == InFlight::finish) {
    EXPECT_EQ(seen.answers_of_two_versions, 0);
    EXPECT_EQ(seen.different, 0);
    EXPECT_EQ(seen.mixed, 0);
  } else if (in_flight == InFlight::reprefill) {
    EXPECT_GT(seen.answers_of_two_versions, 0);
    EXPECT_EQ(seen.different, 0);
    EXPECT_EQ(seen.mixed, 0);
  } else {
    EXPECT_GT(seen.answers_of_two_versions, 0);
    EXPECT_GT(seen.mixed, 0);
    EXPECT_GT(seen.different, 0);  // the control: the comparison sees what old keys and values do
  }
}
INSTANTIATE_TEST_SUITE_P(All, FleetInFlight,
                         testing::Values(std::pair(InFlight::go_on, SwapMemory::spare), std::pair(InFlight::finish, SwapMemory::spare),
                                         std::pair(InFlight::reprefill, SwapMemory::spare), std::pair(InFlight::reprefill, SwapMemory::single)));

// --- trouble
// A replica whose weights a step of the trainer is to be written over: staged, not yet written.
struct StepToWrite {
  StepToWrite(const std::string& where, double learning_rate) : trainer(kDenseModel, where) {
    trainer.publish();
    live.weights = opened.weight_set();
    trainer.trainer.forward_backward(FleetTrainer::data(), {});
    trainer.trainer.take_step({.learning_rate = learning_rate});
    const PublishedSnapshot now = trainer.publish();
    const auto store = open_store(where);
    const SnapshotChain chain(*store, now.written.id, {}, "the live weights");
    staged = staging.stage(*store, chain, live, 2, {}, [](ReplicaStage) {});
  }
  std::uint64_t hash() {
    return executor
        ->run(WorkClass::live,
              [&] {
                return images_hash(opened.model->manifest(),
                                   weight_images(opened.runtime->backend, opened.model->manifest(), *live.weights, opened.runtime->profile));
              })
        .get();
  }
  void write(StagedWeights& what) {
    run_on(*executor, WorkClass::live, [&](const OnExecutor& on) { return staging.write(on, what, live); }).get();
  }
  // An element of a tensor that changes: the first of those that change, where these are held.
  std::pair<ParameterId, std::int64_t> element_of(const StagedChange& change) const {
    std::pair<ParameterId, std::int64_t> place;
    const auto take = [&](const std::map<ParameterId, ParameterChanges>& some) {
      const ParameterChanges::Block& block = some.begin()->second.blocks().front();
      place = {some.begin()->first, block.first + block.offsets.front()};
    };
    std::string zero(static_cast<std::size_t>(safetensors_type_bytes(change.type)), '\0'), other = zero;
    other.front() = 1;
    if (!change.many) take(change.there);
    else ModelTensors(opened.model->manifest(), opened.runtime->profile).each_change(change.tensor, 0, zero, other, change.type, 1, take);
    return place;
  }
  // One bit of the live weights' memory becomes another.
  void flip(const std::pair<ParameterId, std::int64_t>& place) {
    executor
        ->run(WorkClass::live,
              [&] {
                Backend& backend = opened.runtime->backend;
                const Buffer& copy = live.weights->parameters[static_cast<std::size_t>(place.first)];
                const ParameterBits bits = read_bits(backend, copy);
                const bool two_a_word = bits.type == DType::bf16;
                const auto word = static_cast<std::uint32_t>(bits.words[static_cast<std::size_t>(two_a_word ? place.second / 2 : place.second)]);
                ParameterChanges one;
                one.add(place.second, two_a_word ? (word >> (place.second % 2 == 0 ? 0 : 16) & 0xffff) ^ 1 : word ^ 1);
                write_changes(backend, copy, one);
              })
        .get();
  }

  FleetTrainer trainer;
  OpenedModel opened = fleet_opened(kDenseModel, 7);
  std::shared_ptr<Executor> executor = std::make_shared<Executor>();
  WeightStaging staging{opened.runtime, executor, SwapMemory::single};
  LiveWeights live;
  StagedWeights staged;
};

TEST_F(FleetTrouble, ADamagedBaseAndADamagedChangeLeaveTheWeightsAsTheyWere) {
  StepToWrite step(store_, 1e-3);
  ASSERT_GT(step.staged.changes.size(), 2);
  const std::uint64_t before = step.hash();
  // Each change in turn: other digests are expected of what it makes, and of what it is made from.
  for (std::size_t i = 0; i < step.staged.changes.size(); ++i) {
    StagedWeights damaged = step.staged;
    damaged.changes[i].after[0] = damaged.changes[i].after[0] == '0' ? '1' : '0';
    EXPECT_THROW(step.write(damaged), Error);
    EXPECT_EQ(step.hash(), before) << i;
    damaged = step.staged;
    damaged.changes[i].before[0] = damaged.changes[i].before[0] == '0' ? '1' : '0';
    EXPECT_THROW(step.write(damaged), Error);
    EXPECT_EQ(step.hash(), before) << i;
  }
  step.write(step.staged);
  EXPECT_NE(step.hash(), before);
}

void flip_bit(StagedChange& change) {
  if (change.many) {
    change.payload[change.payload.size() / 2] ^= 1;
    return;
  }
  bool first = true;
  ParameterChanges& changes = change.there.begin()->second;
  ParameterChanges other;
  changes.each([&](std::int64_t offset, std::uint32_t bits) { other.add(offset, std::exchange(first, false) ? bits ^ 1 : bits); });
  changes = std::move(other);
}

// The digests are those of the memory as it is when it is written: a bit of it that became another since the changes were staged is found, where the change
// writes over it too, and so is a bit of the changes themselves.
TEST_F(FleetTrouble, AFlippedBitOfTheLiveMemoryOrOfTheChangesIsFound) {
  std::size_t held = 0, payloads = 0;
  for (const double learning_rate : {1e-3, 1e-5}) {  // of which the one changes many elements, the other few
    StepToWrite step(store_, learning_rate);
    const std::uint64_t before = step.hash();
    for (std::size_t i = 0; i < step.staged.changes.size(); ++i) {
      SCOPED_TRACE(fmt::format("change {} at {}", i, learning_rate));
      ++(step.staged.changes[i].many ? payloads : held);
      const auto place = step.element_of(step.staged.changes[i]);
      step.flip(place);
      const std::uint64_t flipped = step.hash();
      ASSERT_NE(flipped, before);
      StagedWeights staged = step.staged;
      EXPECT_THROW(step.write(staged), Error);
      EXPECT_EQ(step.hash(), flipped);
      step.flip(place);
      ASSERT_EQ(step.hash(), before);
      StagedWeights damaged = step.staged;
      flip_bit(damaged.changes[i]);
      EXPECT_THROW(step.write(damaged), Error);
      EXPECT_EQ(step.hash(), before);
    }
    step.write(step.staged);
    EXPECT_NE(step.hash(), before);
    fs::remove_all(root_);
  }
  EXPECT_GT(held, 2);
  EXPECT_GT(payloads, 2);
}

TEST_F(FleetTrouble, AMissingParentIsNamedAndHeals) {
  FleetTrainer trainer(kDenseModel, store_);
  const PublishedSnapshot first = trainer.publish();
  trainer.step();
  const PublishedSnapshot second = trainer.publish();
  const fs::path manifest = root_ / "manifests" / (first.written.id + ".json"), away = root_ / "away";
  fs::rename(manifest, away);
  const FleetReplicaUnderTest other(kDenseModel, store_, "other", {}, 99);
  ASSERT_TRUE(other.wait([](const ReplicaRecord& r) { return r.stage == ReplicaStage::error; }));
  PrometheusText metrics;
  other.follower->append_metrics(metrics);
  EXPECT_NE(metrics.take().find("lockstep_sync_errors_total 1\n"), std::string::npos);
  const ReplicaRecord failed = other.follower->record();
  EXPECT_NE(failed.error.find(first.written.id), std::string::npos) << failed.error;
  EXPECT_EQ(failed.target, second.written.id);
  EXPECT_TRUE(failed.current.empty());
  ChannelFleet fleet(open_store(store_), "chat", {});
  // The store tells it some milliseconds later.
  ASSERT_TRUE(comes_to_pass([&] { return !fleet.progress({second.written.id, second.sequence}).error.empty(); }));
  EXPECT_EQ(fleet.progress({second.written.id, second.sequence}).ready, false);
  EXPECT_NE(fleet.progress({second.written.id, second.sequence}).error.find("other"), std::string::npos);
  fs::rename(away, manifest);
  ASSERT_TRUE(other.reaches(second.sequence)) << other.follower->record().error;
  EXPECT_TRUE(other.follower->record().error.empty());
  EXPECT_EQ(different_scores(other.scores(), trainer.scores()), 0);
}

TEST_F(FleetTrouble, OlderAndRepeatedSignalsChangeNothing) {
  FleetTrainer trainer(kDenseModel, store_);
  const PublishedSnapshot first = trainer.publish();
  const FleetReplicaUnderTest replica(kDenseModel, store_, "r");
  ASSERT_TRUE(replica.reaches(first.sequence));
  trainer.step();
  const PublishedSnapshot second = trainer.publish();
  ASSERT_TRUE(replica.reaches(second.sequence));
  const auto store = open_store(store_);
  const std::string now = channel_text(*read_channel_record(*store, "chat"));
  ASSERT_TRUE(store->swap_channel("chat", now, channel_text({first.sequence, first.written.id, "immediate"})));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(replica.follower->record().current, second.written.id);
  ASSERT_TRUE(store->swap_channel("chat", channel_text({first.sequence, first.written.id, "immediate"}), now));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const ReplicaRecord r = replica.follower->record();
  EXPECT_EQ(r.current, second.written.id);
  EXPECT_EQ(r.stage, ReplicaStage::ready);
  EXPECT_EQ(different_scores(replica.scores(), trainer.scores()), 0);
}

TEST_F(FleetTrouble, StagedReplicasGoOverTogether) {
  FleetTrainer trainer(kDenseModel, store_, {.transition = "staged", .threads = 1});
  const PublishedSnapshot first = trainer.publish();
  const FleetReplicaUnderTest a(kDenseModel, store_, "a"), b(kDenseModel, store_, "b");
  ASSERT_TRUE(a.reaches(first.sequence) && b.reaches(first.sequence));
  std::promise<void> release;
  b.executor->submit(WorkClass::live, [open = release.get_future().share()] { return open.wait(), false; });
  trainer.step();
  const PublishedSnapshot second = trainer.publish();
  ASSERT_TRUE(a.wait([&](const ReplicaRecord& r) { return r.sequence == second.sequence && r.stage == ReplicaStage::staged; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(a.follower->record().stage, ReplicaStage::staged);
  EXPECT_EQ(a.follower->record().current, first.written.id);
  release.set_value();
  EXPECT_TRUE(a.reaches(second.sequence) && b.reaches(second.sequence));
}

TEST_F(FleetTrouble, SilentReplicasAreListedAndNotCounted) {
  FleetTrainer trainer(kDenseModel, store_);
  const PublishedSnapshot now = trainer.publish();
  const FleetReplicaUnderTest a(kDenseModel, store_, "a");
  ASSERT_TRUE(a.reaches(now.sequence));
  const auto store = open_store(store_);
  ChannelFleet early(open_store(store_), "chat", {});
  ASSERT_TRUE(comes_to_pass([&] { return early.progress({now.written.id, now.sequence}).ready; }));  // the store has its record
  ReplicaRecord silent;
  silent.name = "silent";
  silent.stage = ReplicaStage::downloading;
  silent.target = now.written.id;
  silent.unix_milliseconds = unix_milliseconds() - 60'000;
  put_replica(*store, "chat", "silent", replica_text(silent));
  ReplicaRecord slow = silent;
  slow.name = "slow";
  slow.unix_milliseconds = unix_milliseconds();
  put_replica(*store, "chat", "slow", replica_text(slow));
  ChannelFleet all(open_store(store_), "chat", {}), one(open_store(store_), "chat", {.least = 1});
  auto members = all.members();
  ASSERT_EQ(members.size(), 3);
  EXPECT_EQ(members[0].name, "slow");  // the slowest of those that live comes first
  EXPECT_EQ(members[1].name, "a");
  EXPECT_EQ(members[2].name, "silent");
  EXPECT_TRUE(members[2].lost);
  EXPECT_FALSE(all.progress({now.written.id, now.sequence}).ready);
  EXPECT_TRUE(one.progress({now.written.id, now.sequence}).ready);
  EXPECT_EQ(one.members()[0].name, "a");  // the quorum has it
  remove_replica(*store, "chat", "slow");
  EXPECT_TRUE(all.progress({now.written.id, now.sequence}).ready);
  // One that ends leaves the fleet.
  a.follower->stop();
  members = all.members();
  ASSERT_EQ(members.size(), 1);
  EXPECT_EQ(members[0].name, "silent");
}

TEST_F(FleetTrouble, ASnapshotOfAnotherModelOrProfileIsRefused) {
  FleetTrainer trainer(kDenseModel, store_);
  const PublishedSnapshot now = trainer.publish();
  const FleetReplicaUnderTest other(kMoe, store_, "other"), fp32({"f32", "llama/wide", "cpu-f32", 0}, store_, "fp32");
  ASSERT_TRUE(other.wait([](const ReplicaRecord& r) { return r.stage == ReplicaStage::error; }));
  ASSERT_TRUE(fp32.wait([](const ReplicaRecord& r) { return r.stage == ReplicaStage::error; }));
  EXPECT_NE(other.follower->record().error.find("tensor"), std::string::npos) << other.follower->record().error;
  EXPECT_NE(fp32.follower->record().error.find("cpu-f32"), std::string::npos) << fp32.follower->record().error;
  EXPECT_EQ(fp32.follower->record().target, now.written.id);
  for (const char* const few : {"cpu-int4w", "cpu-int4-base", "cpu-int4-qat"}) {
    try {
      const ModelTensors none(trainer.opened.model->manifest(), profile_by_name(few));
      ADD_FAILURE() << few;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::unsupported);
      EXPECT_NE(std::string(e.what()).find(few), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("adapters over a base in few bits"), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace lockstep
