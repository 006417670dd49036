#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "service/training/training_test_tools.h"

namespace lockstep {
namespace {

using Words = std::vector<std::string>;

struct Client {
  std::int64_t rank;
  int sequences;
  bool forward = false;
  std::string loss = "cross_entropy";
};
// Adapters of several ranks, one huge batch among them, one whole model, forwards, and one that asks for what there is not.
const std::vector<Client> kClients{{4, 3}, {8, 2}, {16, 60}, {4, 3, true}, {0, 2}, {8, 3}, {8, 3, false, "nonsense"}, {1, 2, true}, {33, 4}};

// What they get, all at once or one after another, over two steps; an error is its message.
Words results_of(bool share, bool at_once, std::uint64_t* shared_passes = nullptr) {
  TrainingBench bench({.tokens_a_step = 128, .share_passes = share});
  const std::string session = bench.session();
  Words models, all;
  for (std::size_t i = 0; i < kClients.size(); ++i) models.push_back(bench.model(session, static_cast<std::int64_t>(i), kClients[i].rank));
  for (int round = 0; round < 2; ++round) {
    std::promise<void> go = bench.hold();
    if (!at_once) go.set_value();
    Words requests;
    for (std::size_t i = 0; i < kClients.size(); ++i) {
      TrainingBatch batch = training_batch(10 * i + static_cast<std::uint64_t>(round), kClients[i].sequences);
      batch.forward_only = kClients[i].forward;
      batch.loss.name = kClients[i].loss;
      requests.push_back(bench.batch(models[i], 2 * round + 1, std::move(batch)));
      if (!at_once) bench.result(requests.back());
    }
    if (at_once) go.set_value();
    for (std::size_t i = 0; i < kClients.size(); ++i) {
      const Outcome batch = bench.result(requests[i]), step = bench.result(bench.step(models[i], 2 * round + 2));
      all.push_back(batch.bytes + batch.message);
      all.push_back(step.bytes + step.message);
    }
  }
  if (shared_passes) *shared_passes = bench.service->statistics().shared_passes;
  return all;
}

TEST(TrainingService, WhatSharesAPassHasTheBitsItHasAlone) {
  std::uint64_t shared = 0, alone = 0;
  const Words together = results_of(true, true, &shared), one_by_one = results_of(false, false, &alone);
  EXPECT_EQ(together, one_by_one);
  EXPECT_GE(shared, 2u);
  EXPECT_EQ(alone, 0u);
  EXPECT_NE(together[0], together[2]);
  EXPECT_NE(together[0], together[kClients.size() * 2]);  // the second round's weights are others
  EXPECT_NE(together[12].find("nonsense"), std::string::npos);
}

TEST(TrainingService, AHugeBatchDelaysASmallOneByOneTurn) {
  TrainingBench bench({.tokens_a_step = 64});
  const std::string session = bench.session(), huge = bench.model(session, 0, 8), small = bench.model(session, 1, 8);
  std::promise<void> go = bench.hold();
  const std::string long_one = bench.batch(huge, 1, training_batch(1, 200)), short_one = bench.batch(small, 1, training_batch(2, 1));
  go.set_value();
  bench.result(short_one);
  EXPECT_FALSE(bench.service->futures().done(long_one));
  EXPECT_FALSE(bench.result(long_one).failed());
}

bool within_a_minute(const std::function<bool()>& holds) {
  for (int i = 0; i < 6000 && !holds(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return holds();
}

TEST(TrainingService, ChunksThatCameFirstAreComputedFirst) {
  Words got[2];
  for (const bool late : {false, true})
    for (const std::int64_t rank : {8, 0}) {
      TrainingBench bench({.tokens_a_step = 20});
      const std::string model = bench.model(bench.session(), 0, rank);
      Words requests(5);
      const auto send = [&](std::int64_t n) { requests[static_cast<std::size_t>(n)] = bench.batch(model, n, training_batch(static_cast<std::uint64_t>(n), 3)); };
      if (late) {
        for (const std::int64_t n : {2, 3, 4}) send(n);
        EXPECT_TRUE(within_a_minute([&] { return bench.service->statistics().early == 3; }));
        EXPECT_FALSE(bench.service->futures().done(requests[2]));  // the number in front of it may change the model yet
        send(1);
      } else {
        for (const std::int64_t n : {1, 2, 3, 4}) send(n);
      }
      const std::string step = bench.step(model, 5), after = bench.batch(model, 6, training_batch(9, 2));
      for (const std::string& r : {requests[1], requests[2], requests[3], requests[4], step, after}) {
        const Outcome o = bench.result(r);
        EXPECT_FALSE(o.failed()) << o.message;
        got[late].push_back(o.bytes);
      }
      EXPECT_EQ(bench.service->statistics().undone, 0u);
    }
  EXPECT_EQ(got[0], got[1]);
}

TEST(TrainingService, EarlyWorkIsUndoneWhenTheModelChangesUnderIt) {
  Words got[2];
  for (const bool late : {false, true})
    for (const std::int64_t rank : {8, 0})
      for (const bool forward : {false, true}) {
        TrainingBench bench;
        const std::string model = bench.model(bench.session(), 0, rank);
        SaveRequest save;
        save.name = "start";
        const auto text = [](const auto& r) { return Outcome{"text/plain", r.id.empty() ? "" : "done", {}, {}}; };
        bench.result(bench.service->save("me", model, 1, save, [](const CheckpointRecord&) { return Outcome{"text/plain", "saved", {}, {}}; }));
        bench.result(bench.batch(model, 2, training_batch(2, 3)));
        bench.result(bench.step(model, 3));
        TrainingBatch batch = training_batch(5, 4);
        batch.forward_only = forward;
        std::string later;
        if (late) {
          later = bench.batch(model, 5, batch);
          EXPECT_TRUE(within_a_minute([&] { return bench.service->statistics().early == 1; }));
        }
        const std::string load = bench.service->load("me", model, 4, "start", false, text);
        if (!late) later = bench.batch(model, 5, batch);
        const std::string more = bench.batch(model, 6, training_batch(6, 2)), step = bench.step(model, 7);
        for (const std::string& r : {load, later, more, step}) {
          const Outcome o = bench.result(r);
          EXPECT_FALSE(o.failed()) << o.message;
          got[late].push_back(o.bytes);
        }
        EXPECT_EQ(bench.service->statistics().undone, late ? 1u : 0u);
      }
  EXPECT_EQ(got[0], got[1]);
}

TEST(TrainingService, ModelsThatAreUnloadedTellWhoWaits) {
  TrainingBench bench;
  const std::string model = bench.model(bench.session(), 0, 8);
  const std::string waits = bench.step(model, 2);
  bench.result(bench.service->unload_model("me", model, [](const ModelRecord&) { return Outcome{"text/plain", "gone", {}, {}}; }));
  EXPECT_NE(bench.result(waits).message.find("unloaded"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
