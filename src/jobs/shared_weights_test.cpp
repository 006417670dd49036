// Versions of one model in one process: tensors that are equal stand in memory once, measured by the devices' own accounts and counted once by the
// ledger; each version has the bits that it has alone; and when one is swapped, in place too, or leaves, no bit of the others changes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <fstream>
#include <future>

#include "base/error.h"
#include "fleet/follower.h"
#include "fleet/publisher.h"
#include "runs/local_trainer.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;
using PoolClaims = WeightPool::Claims;
constexpr const char* kSharedCategory = "deployments";

OpenedModel shared_opened(std::uint64_t seed = 7) {
  OpenedModel opened;
  opened.name = "tiny";
  opened.model = make_model(Json::parse(std::ifstream(std::string(LOCKSTEP_SOURCE_DIR) + "/tests/golden/glm_moe_dsa/sharing/config.json")));
  opened.initial = [model = opened.model, seed] { return initial_weights(model->manifest(), seed, 0.25); };
  opened.runtime = std::make_shared<Runtime>(BackendOptions{.threads = 1}, opened.model, profile_by_name("cpu-bf16w"), 128);
  return opened;
}

std::int64_t buffer_bytes(const Buffer& buffer) { return buffer.view().size() * buffer.view().element_bytes; }
std::int64_t set_bytes(const WeightSet& set) {
  std::int64_t bytes = 0;
  for (const Buffer& one : set.parameters) bytes += buffer_bytes(one);
  return bytes;
}

// One of several models of a process.
struct OneVersion {
  OpenedModel opened;
  std::int64_t before;  // what its device has without weights
  std::shared_ptr<WeightPool::Part> part;
  std::shared_ptr<Executor> executor;
  std::shared_ptr<const WeightSet> weights;
  std::shared_ptr<GenerationService> service;

  // Weights like those of `like`, but for these parameters, of which some numbers are others. Without a pool it stands alone.
  OneVersion(const OneVersion* like, const std::vector<std::size_t>& changed, const std::shared_ptr<WeightPool>& pool, PoolClaims claims,
             std::shared_ptr<Executor> on = std::make_shared<Executor>())
      : opened(shared_opened()), before(held()), executor(std::move(on)) {
    if (pool) part = pool->part("a version", claims);
    auto set = std::make_shared<WeightSet>();
    const std::shared_ptr<const WeightSet> made = opened.weight_set();
    for (std::size_t i = 0; i < made->parameters.size(); ++i) {
      Buffer own = made->parameters[i];
      Stream& stream = opened.runtime->backend.stream();
      if (like) stream.copy(own.view(), like->weights->parameters[i].view());
      if (std::find(changed.begin(), changed.end(), i) != changed.end()) {
        std::vector<float> values = stream.read(own.view()).get();
        for (std::size_t v = 0; v < values.size(); v += 7) values[v] += 0.5f;
        stream.write(own.view(), values);
      }
      if (part) {
        part->reserve(buffer_bytes(own));
        own = part->keep(opened.runtime->backend, own);
      }
      set->parameters.push_back(own);
    }
    if (part) part->offer(set);
    weights = set;
    service = std::make_shared<GenerationService>(ServingModel{"tiny", opened.runtime, weights, nullptr, executor}, ServingOptions{});
  }
  ~OneVersion() { leave(); }
  void leave() {
    if (service) service->stop();
    service.reset();
    weights.reset();
    part.reset();
  }
  std::int64_t held() const { return opened.runtime->backend.device().memory().current(MemoryCategory::weights); }
  std::int64_t weight_bytes() const { return held() - before; }
  std::vector<std::uint32_t> bits() const {
    std::promise<Generation> done;
    Request request{.prompt = {2, 5, 30, 5, 17, 5, 8, 5, 21, 5}, .sampling = {.max_tokens = 0}, .prompt_logprobs = true};
    service->generate(std::move(request), {}, [&](Generation&& g) { done.set_value(std::move(g)); });
    std::vector<std::uint32_t> bits;
    for (const float score : done.get_future().get().prompt_logprobs) bits.push_back(std::bit_cast<std::uint32_t>(score));
    return bits;
  }
};

// Parameters that differ between versions here: of some size, and such that every answer depends on them.
std::vector<std::size_t> few_parameters(const OpenedModel& opened) {
  std::vector<std::size_t> few;
  const std::vector<Parameter>& all = opened.model->manifest().parameters();
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].name.find("lm_head") != std::string::npos || all[i].name.find("o_proj") != std::string::npos) few.push_back(i);
  return few;
}

class SharedWeightsInMemory : public testing::TestWithParam<SwapMemory> {
 protected:
  ~SharedWeightsInMemory() override { fs::remove_all(root_); }
  fs::path root_ = fs::path(testing::TempDir()) / fmt::format("lockstep_shared_{}", ::getpid());
};

TEST(SharedWeights, ThreeVersionsStandInMemoryOnceButForWhatDiffers) {
  const auto ledger = std::make_shared<MemoryLedger>();
  const auto pool = std::make_shared<WeightPool>(ledger);
  OneVersion a(nullptr, {}, pool, PoolClaims::each);
  const std::vector<std::size_t> few = few_parameters(a.opened);
  ASSERT_GE(few.size(), 2);
  const std::int64_t whole = set_bytes(*a.weights);
  EXPECT_GT(a.weight_bytes(), whole / 2);
  OneVersion b(&a, {few[0]}, pool, PoolClaims::each), c(&a, {few[1]}, pool, PoolClaims::each);
  const std::int64_t differ = buffer_bytes(b.weights->parameters[few[0]]) + buffer_bytes(c.weights->parameters[few[1]]);
  EXPECT_EQ(b.weight_bytes() + c.weight_bytes(), differ);  // measured
  EXPECT_EQ(ledger->held(kSharedCategory), a.weight_bytes() + differ);
  EXPECT_EQ(a.part->own_bytes() + a.part->shared_bytes(), a.weight_bytes());
  EXPECT_EQ(b.part->own_bytes(), buffer_bytes(b.weights->parameters[few[0]]));
  // Alone each has these bits, and all its memory; and the versions are different ones.
  const OneVersion b_alone(&a, {few[0]}, nullptr, PoolClaims::each), c_alone(&a, {few[1]}, nullptr, PoolClaims::each);
  EXPECT_EQ(b_alone.weight_bytes(), whole);
  const auto of_a = a.bits(), of_b = b.bits(), of_c = c.bits();
  EXPECT_EQ(of_b, b_alone.bits());
  EXPECT_EQ(of_c, c_alone.bits());
  EXPECT_NE(of_a, of_b);
  EXPECT_NE(of_a, of_c);
  EXPECT_NE(of_b, of_c);
  // The one that made most of them leaves: the others have what they had, and what was its own alone is free.
  const std::int64_t made = a.weight_bytes();
  a.leave();
  EXPECT_EQ(a.weight_bytes(), made);  // b and c share the rest of each, so that all of it is somebody's
  EXPECT_EQ(b.bits(), of_b);
  EXPECT_EQ(c.bits(), of_c);
  EXPECT_EQ(ledger->held(kSharedCategory), made + differ);
  c.leave();
  EXPECT_EQ(a.weight_bytes(), made - buffer_bytes(b.weights->parameters[few[0]]));
  EXPECT_EQ(c.weight_bytes(), 0);
  EXPECT_EQ(ledger->held(kSharedCategory), a.weight_bytes() + b.weight_bytes());
  EXPECT_EQ(b.bits(), of_b);
  b.leave();
  EXPECT_EQ(a.weight_bytes() + b.weight_bytes(), 0);
  EXPECT_EQ(ledger->held(kSharedCategory), 0);
  EXPECT_EQ(pool->bytes(), 0);
}

TEST(SharedWeights, OfTwoThatFitTenFitWhenTheyAreEqual) {
  const std::int64_t whole = [] {
    const OneVersion one(nullptr, {}, nullptr, PoolClaims::each);
    return set_bytes(*one.weights);
  }();
  const auto ledger = std::make_shared<MemoryLedger>(2 * whole);
  const auto pool = std::make_shared<WeightPool>(ledger);
  const auto executor = std::make_shared<Executor>();
  std::vector<std::unique_ptr<OneVersion>> ten;
  for (int i = 0; i < 10; ++i) ten.push_back(std::make_unique<OneVersion>(nullptr, std::vector<std::size_t>{}, pool, PoolClaims::each, executor));
  EXPECT_LE(ledger->held(kSharedCategory), whole);
  std::vector<std::size_t> all(ten[0]->weights->parameters.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  const std::int64_t before = ledger->held(kSharedCategory);
  const OneVersion other(ten[0].get(), all, pool, PoolClaims::each, executor);  // no parameter of it is another's
  EXPECT_GT(ledger->held(kSharedCategory), before + whole / 2);
  auto changed_again = [&] { OneVersion more(&other, all, pool, PoolClaims::each, executor); };
  EXPECT_THROW(changed_again(), Error);
}

TEST_P(SharedWeightsInMemory, ASwapOfOneChangesNoBitOfTheOthers) {
  const auto executor = std::make_shared<Executor>();
  OpenedModel trained = shared_opened();
  LocalTrainer trainer(trained, {.seed = 3}, {}, executor);
  Publisher publisher(open_store(root_.string(), true), "chat", {{"config.json", "{\"model_type\":\"tiny\"}\n"}}, trained.runtime, executor, {.threads = 1});
  const auto publish = [&] { return publisher.publish(trainer.weights_for(trained.runtime).weights).sequence; };
  const auto ledger = std::make_shared<MemoryLedger>();
  const auto pool = std::make_shared<WeightPool>(ledger);
  OneVersion follows(nullptr, {}, pool, PoolClaims::none, executor);
  OneVersion same(&follows, {}, pool, PoolClaims::each, executor);
  OneVersion near(&follows, {few_parameters(follows.opened)[0]}, pool, PoolClaims::each, executor);
  EXPECT_EQ(same.weight_bytes(), 0);
  EXPECT_GT(near.weight_bytes(), 0);
  EXPECT_LT(near.weight_bytes(), follows.weight_bytes());
  const std::int64_t claimed = ledger->held(kSharedCategory);  // by the two that stay as they are
  EXPECT_EQ(claimed, follows.weight_bytes() + near.weight_bytes());
  const auto of_same = same.bits(), of_near = near.bits(), of_first = follows.bits();
  EXPECT_EQ(of_same, of_first);

  FollowOptions options;
  options.replica = "r";
  options.memory = GetParam();
  options.poll = std::chrono::milliseconds(5);
  options.part = follows.part;
  Follower follower(open_store(root_.string(), true), "chat", follows.service, follows.opened.runtime, executor, follows.weights, options);
  follows.weights.reset();
  const auto reaches = [&](std::uint64_t sequence) {
    ReplicaRecord record = follower.record();
    for (int i = 0; i < 20000 && record.current_sequence < sequence; ++i, record = follower.record()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return record.current_sequence >= sequence && record.stage == ReplicaStage::ready;  // one record has both
  };
  std::vector<std::uint32_t> last = of_first;
  for (int step = 0; step < 3; ++step) {
    trainer.forward_backward({TrainSequence::next_token({1, 5, 7, 9, 3, 11, 2, 8, 13, 4, 6, 1, 5, 9})}, {});
    trainer.take_step({.learning_rate = 1e-3});
    ASSERT_TRUE(reaches(publish())) << follower.record().error;
    EXPECT_EQ(same.bits(), of_same) << step;
    EXPECT_EQ(near.bits(), of_near) << step;
    const auto now = follows.bits();
    EXPECT_NE(now, last);
    std::vector<float> scores = trainer.score({TrainSequence::next_token({2, 5, 30, 5, 17, 5, 8, 5, 21, 5})}).front();
    scores.resize(now.size());
    for (std::size_t i = 0; i < now.size(); ++i) EXPECT_EQ(now[i], std::bit_cast<std::uint32_t>(scores[i])) << i;
    last = now;
  }
  EXPECT_EQ(ledger->held(kSharedCategory), claimed);
  // The others leave, and of the first version nothing is left but what the follower still has.
  const std::int64_t before = follows.weight_bytes();
  near.leave();
  same.leave();
  EXPECT_EQ(ledger->held(kSharedCategory), 0);
  EXPECT_LE(follows.weight_bytes(), before - before / 3);
  EXPECT_EQ(follows.bits(), last);
  follower.stop();
}
INSTANTIATE_TEST_SUITE_P(All, SharedWeightsInMemory, testing::Values(SwapMemory::spare, SwapMemory::single));

}  // namespace
}  // namespace lockstep
