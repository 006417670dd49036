// A trainer publishes, replicas with runtimes of their own follow: after 1, 5 and 50 steps their log-probabilities are the trainer's, bit for bit, of a
// model with experts and a dense one, and of an adapter over a packed base; a weight that is one unit in the last place away is seen. Requests in flight
// go on as they were told. What is damaged, missing or late changes nothing.
#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <fstream>
#include <future>

#include "base/error.h"
#include "fleet/channel_fleet.h"
#include "fleet/follower.h"
#include "fleet/publisher.h"
#include "runs/local_trainer.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

constexpr double kFleetWait = 120;  // seconds after which a test gives up

struct FleetCase {
  const char *name, *config, *profile;
  std::int64_t rank;
};
void PrintTo(const FleetCase& one, std::ostream* out) { *out << one.name; }
const FleetCase kMoe{"moe", "glm_moe_dsa/sharing", "cpu-bf16w", 0}, kDenseModel{"dense", "llama/wide", "cpu-bf16w", 0},
    kPackedAdapter{"packed", "glm_moe_dsa/sharing", "cpu-int4-base", 4};

std::shared_ptr<const Model> fleet_model(const std::string& config) {
  return make_model(Json::parse(std::ifstream(std::string(LOCKSTEP_SOURCE_DIR) + "/tests/golden/" + config + "/config.json")));
}

OpenedModel fleet_opened(const FleetCase& one, std::uint64_t seed) {
  OpenedModel opened;
  opened.name = "tiny";
  opened.model = fleet_model(one.config);
  opened.initial = [model = opened.model, seed] { return initial_weights(model->manifest(), seed, 0.25); };
  opened.runtime = std::make_shared<Runtime>(BackendOptions{.threads = 1}, opened.model, profile_by_name(one.profile), 128);
  return opened;
}

std::string hash_of(const OpenedModel& opened) { return weights_sha256(opened.model->manifest(), opened.initial()); }

struct FleetTrainer {
  OpenedModel opened;
  std::shared_ptr<Executor> executor = std::make_shared<Executor>();
  LocalTrainer trainer;
  Publisher publisher;
  std::string base = hash_of(opened);

  FleetTrainer(const FleetCase& one, const std::string& store, const PublisherOptions& options = {.threads = 1})
      : opened(fleet_opened(one, 7)),
        trainer(opened, {.rank = one.rank, .seed = 3}, {}, executor),
        publisher(open_store(store, true), "chat", {{"config.json", "{\"model_type\":\"tiny\"}\n"}}, opened.runtime, executor, options) {}
  PublishedSnapshot publish(const std::string& held_by = {}) {
    const SamplerWeights now = trainer.weights_for(opened.runtime);
    return now.adapter ? publisher.publish(now.adapter, {base, "tiny"}, held_by) : publisher.publish(now.weights, held_by);
  }
  void step() {
    trainer.forward_backward(data(), {});
    trainer.take_step({.learning_rate = 1e-3});
  }
  static std::vector<TrainSequence> data() { return {TrainSequence::next_token(text())}; }
  static std::vector<std::int32_t> text() { return {1, 5, 7, 9, 3, 11, 2, 8, 13, 4, 6, 1, 5, 9}; }
  // Of it nothing is learned: what a weight does to its log-probabilities is not lost in their sum.
  static std::vector<std::int32_t> other_text() { return {2, 5, 30, 5, 17, 5, 8, 5, 21, 5}; }
  std::vector<float> scores(const std::vector<std::int32_t>& of = text()) {
    std::vector<float> rows = trainer.score({TrainSequence::next_token(of)}).front();
    rows.resize(of.size() - 1);
    return rows;
  }
};

bool comes_to_pass(const std::function<bool()>& so) {
  const auto began = std::chrono::steady_clock::now();
  while (!so()) {
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count() > kFleetWait) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

struct FleetReplicaUnderTest {
  OpenedModel opened;
  std::shared_ptr<Executor> executor = std::make_shared<Executor>();
  std::shared_ptr<const WeightSet> first;
  std::shared_ptr<GenerationService> service;
  std::unique_ptr<Follower> follower;

  // `seed` of its first weights: the trainer's is 7. `ranks` share the model.
  FleetReplicaUnderTest(const FleetCase& one, const std::string& store, const std::string& name, FollowOptions options = {}, std::uint64_t seed = 7,
                        const char* ranks = "")
      : opened(fleet_opened(one, seed)), first(opened.weight_set()) {
    service = std::make_shared<GenerationService>(ServingModel{"tiny", opened.runtime, first, nullptr, executor},
                                                  ServingOptions{.engine = {.ranks = rank_layout(ranks)}});
    options.replica = name;
    options.poll = std::chrono::milliseconds(5);
    options.base_sha256 = [this] { return hash_of(opened); };
    follower = std::make_unique<Follower>(open_store(store, true), "chat", service, opened.runtime, executor, first, options);
  }
  ~FleetReplicaUnderTest() {
    follower->stop();
    service->stop();
  }
  bool wait(const std::function<bool(const ReplicaRecord&)>& until) const {
    return comes_to_pass([&] { return until(follower->record()); });
  }
  bool reaches(std::uint64_t sequence) const {
    return wait([&](const ReplicaRecord& r) { return r.current_sequence >= sequence && r.stage == ReplicaStage::ready; });
  }
  Generation run(Request request) const {
    std::promise<Generation> done;
    service->generate(std::move(request), {}, [&](Generation&& g) { done.set_value(std::move(g)); });
    return done.get_future().get();
  }
  std::vector<float> scores(const std::vector<std::int32_t>& of = FleetTrainer::text()) const {
    return run({.prompt = of, .sampling = {.max_tokens = 0}, .prompt_logprobs = true}).prompt_logprobs;
  }
};

std::size_t different_scores(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return std::max(a.size(), b.size());
  std::size_t different = 0;
  for (std::size_t i = 0; i < a.size(); ++i) different += std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i]);
  return different;
}

class FleetFollow : public testing::TestWithParam<FleetCase> {
 protected:
  ~FleetFollow() override { fs::remove_all(root_); }
  fs::path root_ = fs::path(testing::TempDir()) / fmt::format("lockstep_fleet_{}", ::getpid());
  std::string store_ = root_.string();
};
class FleetBits : public FleetFollow {};
class FleetSwap : public FleetFollow {};
class FleetTrouble : public FleetFollow {};

// A snapshot like the channel's, but for one unit in the last place of one weight.
void push_one_ulp_away(const std::string& place) {
  const auto store = open_store(place);
  const std::string id = find_snapshot(*store, "chat");
  const SnapshotChain chain(*store, id);
  PushedTensors tensors;
  std::size_t changed = 0;
  for (const SnapshotTensor& t : chain.manifest().tensors) {
    if (t.shape.name.find("lm_head") != std::string::npos) changed = tensors.tensors.size();
    tensors.tensors.push_back(t.shape);
  }
  tensors.read = [&](std::size_t i) {
    std::string bytes = chain.tensor(chain.manifest().tensors[i]);
    // Of fp32 (an adapter's) 65536 of them: one alone is lost in the sum. In the row of a token that the text has.
    const TensorShape& shape = tensors.tensors[i];
    const std::size_t row = 5 * bytes.size() / static_cast<std::size_t>(shape.shape[0]), at = row + (shape.type == SafetensorsType::f32 ? 2 : 0);
    if (i == changed) bytes[at] = static_cast<char>(bytes[at] ^ 1);
    return bytes;
  };
  std::vector<std::pair<std::string, std::string>> files;
  for (const SnapshotFile& file : chain.manifest().files) files.emplace_back(file.name, read_snapshot_file(*store, id, file));
  push_tensors(*store, tensors, files, {.parent = id, .threads = 1, .written = [&](const Written& now) { move_channel(*store, "chat", now.id); }});
}

TEST_P(FleetBits, AFollowerHasTheTrainersLogProbabilities) {
  FleetTrainer trainer(GetParam(), store_);
  const FleetReplicaUnderTest spare(GetParam(), store_, "spare"), single(GetParam(), store_, "single", {.memory = SwapMemory::single});
  std::vector<const FleetReplicaUnderTest*> replicas = {&spare, &single};
  std::vector<std::unique_ptr<FleetReplicaUnderTest>> shared;
  if (GetParam().rank == 0)
    for (const SwapMemory memory : {SwapMemory::spare, SwapMemory::single})
      shared.push_back(std::make_unique<FleetReplicaUnderTest>(GetParam(), store_, memory == SwapMemory::spare ? "tp2" : "tp2-single",
                                                               FollowOptions{.memory = memory}, 7, "tp=2"));
  for (const auto& replica : shared) replicas.push_back(replica.get());
  const PublishedSnapshot first = trainer.publish();
  EXPECT_EQ(first.written.codecs.at("full"), static_cast<std::int64_t>(first.written.codecs.size() == 1 ? first.written.codecs.begin()->second : -1));
  std::uint64_t deltas = 0;
  for (int step = 1; step <= 50; ++step) {
    trainer.step();
    const PublishedSnapshot now = trainer.publish();
    EXPECT_LT(now.written.payload_bytes, now.written.full_bytes) << "step " << step;
    deltas += now.written.payload_bytes;
    if (step != 1 && step != 5 && step != 50) continue;
    const std::vector<float> own = trainer.scores();
    for (const FleetReplicaUnderTest* replica : replicas) {
      ASSERT_TRUE(replica->reaches(now.sequence)) << replica->follower->record().error;
      EXPECT_EQ(different_scores(replica->scores(), own), 0) << "step " << step;
      EXPECT_EQ(replica->follower->record().current, now.written.id);
    }
  }
  EXPECT_GT(deltas, 0);
  EXPECT_LT(deltas, 40 * first.written.full_bytes);  // of 50 steps
  // The control.
  const std::vector<float> own = trainer.scores(FleetTrainer::other_text());
  EXPECT_EQ(different_scores(spare.scores(FleetTrainer::other_text()), own), 0);
  push_one_ulp_away(store_);
  const std::uint64_t last = read_channel_record(*open_store(store_), "chat")->sequence;
  ASSERT_TRUE(spare.reaches(last)) << spare.follower->record().error;
  const std::vector<float> other = spare.scores(FleetTrainer::other_text());
  EXPECT_GT(different_scores(other, own), 0);
  for (const FleetReplicaUnderTest* replica : replicas) {
    ASSERT_TRUE(replica->reaches(last)) << replica->follower->record().error;
    EXPECT_EQ(different_scores(replica->scores(FleetTrainer::other_text()), other), 0);
  }
}
INSTANTIATE_TEST_SUITE_P(All, FleetBits, testing::Values(kMoe, kDenseModel, kPackedAdapter), [](const auto& one) { return std::string(one.param.name); });

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
TEST_F(FleetTrouble, ADamagedBaseAndADamagedChangeLeaveTheWeightsAsTheyWere) {
  FleetTrainer trainer(kDenseModel, store_);
  trainer.publish();
  const OpenedModel opened = fleet_opened(kDenseModel, 7);
  const auto executor = std::make_shared<Executor>();
  const WeightStaging staging(opened.runtime, executor, SwapMemory::single, nullptr, 1);  // each change in a turn of its own
  LiveWeights live;
  live.weights = opened.weight_set();
  trainer.step();
  const PublishedSnapshot now = trainer.publish();
  const auto store = open_store(store_);
  const SnapshotChain chain(*store, now.written.id, {}, "the live weights");
  StagedWeights staged = staging.stage(*store, chain, live, 2, {}, [](ReplicaStage) {});
  ASSERT_GT(staged.changes.size(), 2);
  const auto hash = [&] {
    return executor
        ->run(WorkClass::live,
              [&] {
                return images_hash(opened.model->manifest(),
                                   weight_images(opened.runtime->backend, opened.model->manifest(), *live.weights, opened.runtime->profile));
              })
        .get();
  };
  const auto write = [&](StagedWeights& what) { return executor->run(WorkClass::live, [&] { return staging.write(what, live); }).get(); };
  const std::uint64_t before = hash();
  // Each change in turn, in its payload and in what it is made from.
  for (std::size_t i = 0; i < staged.changes.size(); ++i) {
    StagedWeights damaged = staged;
    damaged.changes[i].after[0] = damaged.changes[i].after[0] == '0' ? '1' : '0';
    EXPECT_THROW(write(damaged), Error);
    EXPECT_EQ(hash(), before) << i;
    damaged = staged;
    damaged.changes[i].before[0] = damaged.changes[i].before[0] == '0' ? '1' : '0';
    EXPECT_THROW(write(damaged), Error);
    EXPECT_EQ(hash(), before) << i;
  }
  write(staged);
  EXPECT_NE(hash(), before);
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
}

}  // namespace
}  // namespace lockstep
