// Memory is counted before it is taken: what the planner says is what a model's accounts say, clients that want more than there is are
// refused one by one, and what was acknowledged is there.
#include <gtest/gtest.h>

#include "host/model_memory.h"
#include "host/training_test_tools.h"

namespace lockstep {
namespace {
constexpr std::int64_t kMegabyte = std::int64_t{1} << 20;

// A service that may take so many bytes; what it claims at the start is in them.
struct LimitedBench : TrainingBench {
  explicit LimitedBench(std::int64_t bytes, TrainingServiceOptions options = {.tokens_a_step = 64}) : TrainingBench(options) {
    service.reset();
    base->ledger = std::make_shared<MemoryLedger>(bytes);
    options.state = folder;
    service = std::make_shared<TrainingService>(base, generation, options);
  }
  std::int64_t free() const { return base->ledger->free(); }
  // What is free is so many bytes from here on.
  MemoryLedger::Claim leave(std::int64_t bytes) { return base->ledger->claim("others", {}, free() - bytes, "others"); }
  bool fails(const std::string& request, const std::string& part, const std::string& owner = "me") {
    const Outcome outcome = result(request, owner);
    if (!outcome.failed()) return false;
    EXPECT_NE(outcome.message.find(part), std::string::npos) << outcome.message;
    return true;
  }
  std::string save(const std::string& model, std::int64_t sequence, const std::string& name) {
    return service->operations().save("me", model, sequence, {.name = name}, [](const CheckpointRecord& r) { return Outcome{"text/plain", r.path(), {}, {}}; });
  }
};

// Of all ranks.
struct AllAccounts {
  explicit AllAccounts(const TrainingBase& base) {
    const std::shared_ptr<RankRuntimes> ranks = rank_runtimes(base);
    for (int rank = 0; rank < ranks->ranks().local(); ++rank) of.push_back(&ranks->runtime(rank).backend.device().memory());
  }
  std::int64_t now() const {
    std::int64_t bytes = 0;
    for (const MemoryAccounts* memory : of)
      for (int c = 0; c < kMemoryCategories; ++c) bytes += memory->current(static_cast<MemoryCategory>(c));
    return bytes;
  }
  void reset_peaks() const {
    for (MemoryAccounts* memory : of) memory->reset_peaks();
  }
  std::int64_t peak_of_all() const {
    std::int64_t bytes = 0;
    for (const MemoryAccounts* memory : of) bytes += memory->peak_of_all();
    return bytes;
  }
  std::vector<MemoryAccounts*> of;
};

void gradient_of(TrainedModel& model, const std::vector<TrainSequence>& data) {
  LossOptions loss;
  loss.normaliser = 1;
  std::vector<std::size_t> places(data.size());
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = i;
  model.begin({.sequences = data.size()}, loss);
  model.add(places, data);
  model.finish();
}

// The real model beside its plan: at rest and with gradients the same bytes, in turns never more than planned.
void compare_with_plan(const RankLayout& layout) {
  TrainingBench bench({}, {.threads = 1}, {}, layout);
  bench.service.reset();
  bench.base->options.kept = std::make_shared<KeptPasses>(0);  // forwards that are kept have a claim of their own
  ModelMemoryPlanner planner(*bench.base);
  const AllAccounts memory(*bench.base);
  for (const std::int64_t rank : {0, 4, 32}) {
    SCOPED_TRACE(fmt::format("rank {}", rank));
    ModelSettings settings;
    settings.rank = rank;
    settings.seed = 3;
    const ModelMemory& plan = planner.of(settings);
    const std::int64_t without = memory.now();
    if (rank > 0) {
      const bool first = !bench.base->frozen;
      frozen_passes(*bench.base);
      if (first) {
        EXPECT_EQ(memory.now() - without, plan.base);
      }
    }
    const std::int64_t before = memory.now();
    const std::unique_ptr<TrainedModel> model = make_trained_model(*bench.base, settings);
    EXPECT_EQ(memory.now() - before, plan.resting);
    {
      const SamplerWeights sampled = model->sampler_weights();
      EXPECT_EQ(memory.now() - before - plan.resting, plan.copied);
      EXPECT_EQ(plan.copied > 0, layout.model() > 1 || (layout.shards_weights() && rank == 0));
    }
    EXPECT_EQ(memory.now() - before, plan.resting);  // nobody has the copy any more
    RandomSequence draws(static_cast<std::uint64_t>(rank), RandomStream::fuzz);
    std::int64_t most_rows = 0;
    for (int round = 0; round < 12; ++round) {
      std::vector<TrainSequence> data;
      for (std::uint32_t s = 1 + draws.below(9); s > 0; --s) {
        std::vector<std::int32_t> tokens(2 + draws.below(100));
        for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(draws.below(64));
        data.push_back(TrainSequence::next_token(tokens));
      }
      const std::int64_t rows = memory_rows(data.data(), data.data() + data.size());
      most_rows = std::max(most_rows, rows);
      memory.reset_peaks();
      gradient_of(*model, data);
      const std::int64_t held = memory.now();
      EXPECT_LE(memory.peak_of_all() - held, plan.turn.bytes(rows)) << rows;
      // A plan, not just a large number; its table begins there. Replicas may have unequal sequences.
      if (rows >= 64) {
        EXPECT_GE((layout.dp > 1 ? 4 : 2) * (memory.peak_of_all() - held), plan.turn.bytes(rows)) << rows;
      }
      memory.reset_peaks();
      model->optim_step({});
      EXPECT_LE(memory.peak_of_all() - held, plan.step);
      EXPECT_LE(held - memory.now(), rank > 0 ? plan.accumulators : plan.alone);
      EXPECT_LE(memory.now() - before, plan.resting + plan.pass.bytes(most_rows));
      memory.reset_peaks();
      model->score(data);
      EXPECT_LE(memory.peak_of_all() - memory.now(), plan.forward.bytes(rows)) << rows;
    }
    // Two gradients before a step.
    const std::vector<TrainSequence> data(3, TrainSequence::next_token({1, 2, 3, 4, 5}));
    const std::int64_t rests = memory.now();
    gradient_of(*model, data);
    gradient_of(*model, data);
    EXPECT_EQ(memory.now() - rests, plan.accumulators);
    model->optim_step({});
  }
}

TEST(TrainingMemory, ThePlanIsWhatTheAccountsOfARealModelSay) { compare_with_plan({}); }

// The same of all ranks together, each of which has its shares.
TEST(TrainingMemory, ThePlanOfRanksIsWhatTheirAccountsSay) {
  for (const RankLayout& layout : {RankLayout{.tp = 2}, {.dp = 2}, {.tp = 2, .dp = 2, .ep = 2}, {.dp = 2, .shard = RankShard::weights}}) {
    SCOPED_TRACE(layout.text());
    compare_with_plan(layout);
  }
}

// Kept tokens take room that a table of rows does not know, and no more than is claimed for them.
TEST(TrainingMemory, KeptTokensHaveRoomBesideTheRows) {
  TrainingBench bench;
  bench.service.reset();
  bench.base->options.kept = std::make_shared<KeptPasses>(0);
  const AllAccounts memory(*bench.base);
  std::vector<std::int32_t> ids(40), tokens;
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i);
  for (std::int32_t i = 0; i < 100; ++i) tokens.push_back(7 * i % 40);
  const std::vector<TrainSequence> plain{TrainSequence::next_token(tokens)};
  std::vector<TrainSequence> cut = plain;
  const std::int64_t vocabulary = bench.base->opened.model->facts().vocabulary;
  cut[0].kept_tokens.assign(cut[0].tokens.size(), KeptTokens::of(KeptTokens::Order::by_rank, ids, vocabulary));
  EXPECT_EQ(kept_set_bytes(plain.data(), plain.data() + 1, vocabulary), 0);
  for (const std::int64_t rank : {0, 4}) {
    SCOPED_TRACE(fmt::format("rank {}", rank));
    ModelSettings settings;
    settings.rank = rank;
    settings.seed = 3;
    const std::unique_ptr<TrainedModel> model = make_trained_model(*bench.base, settings);
    const auto turn = [&](const std::vector<TrainSequence>& data) {
      memory.reset_peaks();
      gradient_of(*model, data);
      const std::int64_t bytes = memory.peak_of_all() - memory.now();
      model->optim_step({});
      return bytes;
    };
    turn(plain);  // what stays of a turn for the next one
    const std::int64_t without = turn(plain), with = turn(cut);
    EXPECT_GT(with, without);
    EXPECT_LE(with - without, kept_set_bytes(cut.data(), cut.data() + 1, vocabulary));
  }
}

TEST(TrainingMemory, WithoutRoomAModelIsRefusedWithTheFigures) {
  LimitedBench bench(64 * kMegabyte);
  const std::string session = bench.session();
  const MemoryLedger::Claim others = bench.leave(100);
  EXPECT_TRUE(bench.fails(bench.submit_model(session, 0, 0), "are free (--memory-megabytes)"));
  EXPECT_EQ(bench.base->ledger->held("models"), 0);
}

// Many models in room for two: the others rest on disk, and each goes on with the bits that it has alone.
TEST(TrainingMemory, ModelsRestOnDiskBeforeAnybodyIsRefused) {
  const auto run = [](bool limited) {
    LimitedBench bench(64 * kMegabyte);
    const std::string session = bench.session();
    std::vector<std::string> models, bits;
    MemoryLedger::Claim others;
    for (std::int64_t m = 0; m < 5; ++m) {
      models.push_back(bench.model(session, m, 0));
      if (limited && m == 0) others = bench.leave(3 * bench.base->ledger->held("models"));
    }
    for (std::int64_t round = 0; round < 2; ++round)
      for (std::size_t m = 0; m < models.size(); ++m) {
        const Outcome batch = bench.result(bench.batch(models[m], 2 * round + 1, training_batch(m, 3))),
                      step = bench.result(bench.step(models[m], 2 * round + 2));
        EXPECT_FALSE(batch.failed() || step.failed()) << batch.message << step.message;
        bits.push_back(batch.bytes + step.bytes);
      }
    if (limited) {
      EXPECT_LE(bench.base->ledger->held(), bench.base->ledger->total());
    }
    return bits;
  };
  EXPECT_EQ(run(true), run(false));
}

// A gradient that fits beside nothing is refused, keeps what it had, and is taken when there is room again.
TEST(TrainingMemory, AGradientThatDoesNotFitIsThatOperationsErrorAndLosesNothing) {
  LimitedBench bench(64 * kMegabyte, {.tokens_a_step = 64});
  const std::string session = bench.session(), model = bench.model(session, 0, 0);
  ASSERT_FALSE(bench.result(bench.batch(model, 1, training_batch(1, 3))).failed());
  const std::int64_t gradient = bench.base->ledger->held("gradients");
  ASSERT_GT(gradient, 0);
  ASSERT_FALSE(bench.result(bench.step(model, 2)).failed());
  EXPECT_EQ(bench.base->ledger->held("gradients"), 0);
  MemoryLedger::Claim others = bench.leave(gradient - 1);
  EXPECT_TRUE(bench.fails(bench.batch(model, 3, training_batch(2, 3)), "the gradient of model"));
  const Outcome saved = bench.result(bench.save(model, 4, "kept"));
  EXPECT_FALSE(saved.failed()) << saved.message;  // there is always room to write
  others.release();
  EXPECT_FALSE(bench.result(bench.batch(model, 5, training_batch(2, 3))).failed());
  EXPECT_FALSE(bench.result(bench.step(model, 6)).failed());
}

// A loss that adds the log-probabilities to zeros of 4 MB, which takes some 32 MB for a datum. Its id.
std::string large_loss(TrainingBench& bench, const std::string& session) {
  const auto ref = [](const char* name) -> TrainingJson { return {{"ref", name}}; };
  TrainingJson nodes = TrainingJson::array();
  nodes.push_back({{"op", "placeholder"}, {"name", "logprobs"}, {"target", "logprobs"}});
  const auto call = [&](const char* name, const char* target, const TrainingJson& arguments) {
    nodes.push_back({{"op", "call_function"}, {"name", name}, {"target", target}, {"args", arguments}});
  };
  call("sum", "torch.sum", TrainingJson::array({ref("logprobs")}));
  call("zeros", "torch.zeros", TrainingJson::array({1 << 19}));
  call("all", "torch.add", TrainingJson::array({ref("zeros"), ref("sum")}));
  call("loss", "torch.mean", TrainingJson::array({ref("all")}));
  const TrainingJson result = {{"tuple", TrainingJson::array({ref("loss"), {{"dict", TrainingJson::object()}}})}};
  nodes.push_back({{"op", "output"}, {"name", "output"}, {"target", "output"}, {"args", TrainingJson::array({result})}});
  TrainingJson input, document;
  input["name"] = "logprobs";
  input["rank"] = 1;
  document["name"] = "large";
  document["inputs"] = TrainingJson::array({input});
  document["graph"] = {{"format", 1}, {"nodes", nodes}};
  const Outcome loss = bench.result(bench.service->custom_losses().create("me", session, 0, document, [](const std::string& id) {
    return Outcome{"text/plain", id, {}, {}};
  }));
  EXPECT_FALSE(loss.failed()) << loss.message;
  return loss.bytes;
}

// What a traced loss computes has its room while it is computed, that of one datum however many there are, and nothing else is lost where it has none.
TEST(TrainingMemory, WhatATracedLossComputesIsClaimedAndRefusedWithTheFigures) {
  const auto run = [](bool limited) {
    LimitedBench bench(256 * kMegabyte, {.tokens_a_step = 4096, .turn_seconds = 60});
    const std::string session = bench.session(), model = bench.model(session, 0, 0);
    TrainingBatch large = training_batch(2, 3);
    large.loss.name = "custom";
    large.loss.config["loss_id"] = large_loss(bench, session);
    std::string bits = bench.result(bench.batch(model, 1, training_batch(1, 3))).bytes;
    std::int64_t next = 2;
    if (limited) {
      const MemoryLedger::Claim others = bench.leave(8 * kMegabyte);
      const Outcome refused = bench.result(bench.batch(model, next++, large));
      EXPECT_TRUE(refused.failed());
      EXPECT_NE(refused.message.find(fmt::format("a datum under a traced loss of model '{}' (", model)), std::string::npos) << refused.message;
      EXPECT_NE(refused.message.find("losses: they go when the datum is computed"), std::string::npos) << refused.message;
      EXPECT_EQ(bench.base->ledger->held("losses"), 0);
    }
    const MemoryLedger::Claim others = bench.leave(64 * kMegabyte);
    for (int i = 0; i < 2; ++i) {
      const Outcome batch = bench.result(bench.batch(model, next++, large));
      EXPECT_FALSE(batch.failed()) << batch.message;
      EXPECT_EQ(bench.base->ledger->held("losses"), 0);
      bits += batch.bytes;
    }
    const Outcome step = bench.result(bench.step(model, next));
    EXPECT_FALSE(step.failed()) << step.message;
    return bits + step.bytes;
  };
  EXPECT_TRUE(run(true) == run(false));
}

// Five models in room for one with its gradients and a little, batches of several turns: nobody is refused, and each has the bits that it has alone.
TEST(TrainingMemory, ModelsRestWithTheirGradients) {
  const auto run = [](bool limited) {
    LimitedBench bench(64 * kMegabyte, {.tokens_a_step = 32, .turn_seconds = 0});
    const std::string session = bench.session();
    std::vector<std::string> models, bits;
    MemoryLedger::Claim others;
    for (std::int64_t m = 0; m < 5; ++m) {
      models.push_back(bench.model(session, m, m % 2 == 0 ? 0 : 8));
      if (limited && m == 0) others = bench.leave(5 * bench.base->ledger->held("models"));
    }
    std::vector<std::string> requests;
    for (std::int64_t call = 1; call <= 3; ++call)
      for (std::size_t m = 0; m < models.size(); ++m)
        requests.push_back(bench.batch(models[m], call, training_batch(10 * m + static_cast<std::size_t>(call), 20)));
    for (std::size_t m = 0; m < models.size(); ++m) requests.push_back(bench.step(models[m], 4));
    for (const std::string& request : requests) {
      const Outcome outcome = bench.result(request);
      EXPECT_FALSE(outcome.failed()) << outcome.message;
      bits.push_back(outcome.bytes);
    }
    EXPECT_EQ(bench.base->ledger->held("gradients"), 0);
    EXPECT_EQ(bench.service->statistics().gradients_saved > 0, limited);
    return bits;
  };
  EXPECT_TRUE(run(true) == run(false));
}

// A snapshot that has no room in memory is on disk at once, and is sampled with the same bits when there is room.
TEST(TrainingMemory, ASnapshotWithoutRoomIsOnDisk) {
  LimitedBench bench(64 * kMegabyte);
  const std::string session = bench.session(), model = bench.model(session, 0, 0);
  ASSERT_FALSE(bench.result(bench.batch(model, 1, training_batch(1, 3))).failed());
  ASSERT_FALSE(bench.result(bench.step(model, 2)).failed());
  MemoryLedger::Claim others = bench.leave(100);
  const Outcome made = bench.result(bench.service->operations().save_sampler("me", model, 3, false, [](const SamplerRecord& r) {
    return Outcome{"text/plain", r.id, {}, {}};
  }));
  ASSERT_FALSE(made.failed()) << made.message;
  EXPECT_TRUE(bench.service->samplers().find("me", made.bytes).spilled);
  EXPECT_EQ(bench.base->ledger->held("samplers"), 0);
  EXPECT_NO_THROW(bench.service->samplers().weights("me", made.bytes));  // the model rests on disk meanwhile
  EXPECT_GT(bench.base->ledger->held("samplers"), 0);
}

// A piece that does not fit is cut, and has the same bits.
TEST(TrainingMemory, ABatchIsTakenInSmallerTurnsWhereAWholeOneDoesNotFit) {
  const auto run = [](bool limited) {
    LimitedBench bench(64 * kMegabyte, {.tokens_a_step = 64, .turn_seconds = 1000});
    const std::string session = bench.session(), model = bench.model(session, 0, 8);
    std::string bits = bench.result(bench.batch(model, 1, training_batch(1, 40))).bytes;  // turns grow meanwhile
    MemoryLedger::Claim others;
    if (limited) others = bench.leave(kMegabyte / 8);
    const Outcome outcome = bench.result(bench.batch(model, 2, training_batch(2, 60))), step = bench.result(bench.step(model, 3));
    EXPECT_FALSE(outcome.failed() || step.failed()) << outcome.message << step.message;
    return bits + outcome.bytes + step.bytes;
  };
  EXPECT_EQ(run(true), run(false));
}

}  // namespace
}  // namespace lockstep
