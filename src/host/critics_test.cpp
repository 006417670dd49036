// Critics beside policies in one service: they rest and come back with the same bits, their memory is planned and claimed, and neither becomes the other.
#include <gtest/gtest.h>

#include "host/model_memory.h"
#include "host/training_test_tools.h"
#include "train/value_loss.h"

namespace lockstep {
namespace {

std::string submit_critic(TrainingBench& bench, const std::string& session, std::int64_t number, std::int64_t rank) {
  CreateModel wanted;
  wanted.session = session;
  wanted.number = number;
  wanted.settings.base_model = "tiny:value";
  wanted.settings.rank = rank;
  wanted.settings.seed = 7 + static_cast<std::uint64_t>(number);
  return bench.service->model_life().create("me", wanted, [](const ModelRecord& r) { return Outcome{"text/plain", r.id, {}, {}}; });
}

std::string told_of(TrainingBench& bench, const std::string& request) {
  const Outcome outcome = bench.result(request);
  EXPECT_FALSE(outcome.failed()) << outcome.message;
  return outcome.bytes;
}
std::string refused_with(TrainingBench& bench, const std::string& request) {
  const Outcome outcome = bench.result(request);
  return outcome.failed() ? outcome.message : "accepted";
}

TrainingBatch states_with_returns(std::uint64_t seed, int sequences) {
  TrainingBatch batch = training_batch(seed, sequences);
  batch.loss.name = "value";
  RandomSequence draws(seed, RandomStream::fuzz, 1);
  for (TrainingDatum& datum : batch.data) {
    NamedTensor returns{.shape = {std::ssize(datum.tokens)}, .floats = {}, .integers = {}, .is_float = true};
    for (std::size_t i = 0; i < datum.tokens.size(); ++i) returns.floats.push_back(static_cast<float>(draws.below(100)) * 0.01f);
    datum.inputs["returns"] = std::move(returns);
  }
  return batch;
}

TrainingBatch states_alone(std::uint64_t seed, int sequences) {
  TrainingBatch batch = states_with_returns(seed, sequences);
  batch.forward_only = true;
  for (TrainingDatum& datum : batch.data) datum.inputs.clear();
  return batch;
}

// Two critics and a policy take turns, with as many places as models, or with one.
TEST(Critics, LeaveMemoryAndComeBackWithTheSameBits) {
  for (const std::int64_t rank : {0, 2}) {
    SCOPED_TRACE(fmt::format("rank {}", rank));
    const auto run = [&](bool crowded) {
      TrainingBench bench({.max_models = crowded ? 1 : 10});
      const std::string session = bench.session();
      const std::string a = told_of(bench, submit_critic(bench, session, 0, rank)), b = told_of(bench, submit_critic(bench, session, 1, rank));
      const std::string policy = bench.model(session, 2, rank);
      std::string bits;
      for (std::int64_t round = 0; round < 2; ++round) {
        const std::int64_t n = 3 * round;
        bits += told_of(bench, bench.batch(a, n + 1, states_with_returns(1, 3)));
        bits += told_of(bench, bench.batch(policy, n + 1, training_batch(1, 3)));
        bits += told_of(bench, bench.batch(b, n + 1, states_with_returns(2, 4)));
        for (const std::string& model : {a, b, policy}) bits += told_of(bench, bench.step(model, n + 2));
        for (const std::string& model : {a, b}) bits += told_of(bench, bench.batch(model, n + 3, states_alone(3, 2)));
        bits += told_of(bench, bench.batch(policy, n + 3, training_batch(3, 2)));
      }
      return bits;
    };
    EXPECT_TRUE(run(true) == run(false));
  }
}

TEST(Critics, HaveLossesOfTheirOwn) {
  TrainingBench bench;
  const std::string session = bench.session(), critic = told_of(bench, submit_critic(bench, session, 0, 2)), policy = bench.model(session, 1, 2);
  TrainingBatch pair = states_alone(1, 2);
  pair.forward_only = false;
  pair.loss.name = "pairwise_reward";
  EXPECT_NE(refused_with(bench, bench.batch(critic, 1, training_batch(1, 2))).find("the model is a critic"), std::string::npos);
  EXPECT_NE(refused_with(bench, bench.batch(policy, 1, states_with_returns(1, 2))).find("the model has no value head"), std::string::npos);
  EXPECT_NE(refused_with(bench, bench.batch(policy, 2, pair)).find("the model has no value head"), std::string::npos);
  EXPECT_NE(told_of(bench, bench.batch(critic, 2, pair)).find("accuracy:mean"), std::string::npos);
  EXPECT_NE(told_of(bench, bench.batch(critic, 3, states_with_returns(1, 2))).find("values_held:mean"), std::string::npos);
  TrainingBatch without = states_alone(1, 2);
  without.forward_only = false;
  EXPECT_NE(refused_with(bench, bench.batch(critic, 4, without)).find("data[0].loss_fn_inputs has no returns"), std::string::npos);
  EXPECT_EQ(told_of(bench, bench.batch(critic, 5, states_alone(1, 2))).find("loss:sum"), std::string::npos);
}

std::int64_t bytes_now(MemoryAccounts& memory) {
  std::int64_t bytes = 0;
  for (int c = 0; c < kMemoryCategories; ++c) bytes += memory.current(static_cast<MemoryCategory>(c));
  return bytes;
}

// As TrainingMemory.ThePlanIsWhatTheAccountsOfARealModelSay, of a model with a value head.
TEST(Critics, ThePlanIsWhatTheAccountsOfARealCriticSay) {
  TrainingBench bench;
  TrainingBase base = *bench.base;
  base.opened = bench.base->open_values();
  base.weights = base.opened.weight_set();
  base.ranks = nullptr;
  base.frozen = nullptr;
  base.options.kept = std::make_shared<KeptPasses>(0);
  MemoryAccounts& memory = base.opened.runtime->backend.device().memory();
  ModelMemoryPlanner planner(base);
  LossOptions loss = value_loss({{"value_clip", 0.5}});
  loss.normaliser = 1;
  for (const std::int64_t rank : {0, 4}) {
    SCOPED_TRACE(fmt::format("rank {}", rank));
    ModelSettings settings;
    settings.rank = rank;
    settings.seed = 3;
    const ModelMemory& plan = planner.of(settings);
    if (rank > 0) frozen_passes(base);
    const std::int64_t before = bytes_now(memory);
    const std::unique_ptr<TrainedModel> model = make_trained_model(base, settings);
    EXPECT_EQ(bytes_now(memory) - before, plan.resting);
    for (int count = 1; count < 9; ++count) {
      std::vector<TrainSequence> data;
      std::vector<std::size_t> places;
      for (int s = 0; s < count; ++s) {
        std::vector<std::int32_t> tokens(100, 3);
        tokens[0] = s;
        data.push_back(TrainSequence::next_token(tokens));
        data.back().advantages = data.back().old_logprobs = data.back().weights;
        places.push_back(static_cast<std::size_t>(s));
      }
      const std::int64_t rows = memory_rows(data.data(), data.data() + data.size());
      memory.reset_peaks();
      model->begin({.sequences = data.size()}, loss);
      model->add(places, data);
      model->finish();
      const std::int64_t held = bytes_now(memory), turn = memory.peak_of_all() - held;
      EXPECT_LE(turn, plan.turn.bytes(rows)) << rows;
      EXPECT_GE(2 * turn, plan.turn.bytes(rows)) << rows;
      memory.reset_peaks();
      model->optim_step({});
      EXPECT_LE(memory.peak_of_all() - held, plan.step);
    }
  }
}

// The weights under critics' adapters are claimed when the first one comes, once; where they do not fit it is refused, and policies go on.
TEST(Critics, TheirBaseIsClaimedOnce) {
  TrainingBench bench;
  bench.service.reset();
  const auto serve = [&](std::int64_t bytes) {
    bench.base->ledger = std::make_shared<MemoryLedger>(bytes);
    bench.service = std::make_shared<TrainingService>(bench.base, bench.generation, TrainingServiceOptions{.state = bench.folder, .tokens_a_step = 64});
  };
  serve(std::int64_t{64} << 20);
  const OpenedModel values = bench.base->open_values();
  const std::int64_t weights = loaded_bytes(*values.model, values.runtime->profile).weights;
  const std::string session = bench.session();
  MemoryLedger::Claim others = bench.base->ledger->claim("others", {}, bench.base->ledger->free() - weights / 2, "others");
  EXPECT_NE(refused_with(bench, submit_critic(bench, session, 0, 2)).find("memory"), std::string::npos);
  EXPECT_EQ(bench.base->ledger->held("base"), 0);
  others.release();
  told_of(bench, submit_critic(bench, session, 1, 2));
  EXPECT_EQ(bench.base->ledger->held("base"), weights);
  const std::string critic = told_of(bench, submit_critic(bench, session, 2, 2)), policy = bench.model(session, 3, 2);
  EXPECT_EQ(bench.base->ledger->held("base"), weights);
  told_of(bench, bench.batch(critic, 1, states_with_returns(1, 3)));
  const std::int64_t with_pass = bench.base->ledger->held("base");
  EXPECT_GT(with_pass, weights);
  told_of(bench, bench.batch(policy, 1, training_batch(1, 3)));
  EXPECT_GT(bench.base->ledger->held("base"), with_pass);
}

}  // namespace
}  // namespace lockstep
