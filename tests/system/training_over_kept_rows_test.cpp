// Ranks of a trainer read the rows that the one rank of an engine has computed, or the first of several (model/kept_ranks.h): gradients, losses and
// log-probabilities are those of one rank that computes everything, and one wrong bit is found.
#include <gtest/gtest.h>

#include "model/kept_ranks.h"
#include "parallel/thread_ranks.h"
#include "system/kept_test_tools.h"
#include "train/kept_forward.h"

namespace lockstep::kept_tests {
namespace {

struct RanksCase {
  const char* trainer;
  const char* engine;
  RowValues values;
};
constexpr RanksCase kRanksThatRead[] = {
    {"dp=2", "", RowValues::segments},          {"dp=3", "", RowValues::operations},   {"tp=2", "", RowValues::segments},
    {"tp=2", "tp=2", RowValues::segments},      {"ep=2", "ep=2", RowValues::segments}, {"tp=2,dp=2,ep=2", "tp=2,ep=2", RowValues::segments},
    {"tp=3", "tp=2", RowValues::segments},      {"cp=2", "", RowValues::segments},     {"cp=2,dp=2", "", RowValues::operations},
    {"tp=2,cp=2", "tp=2", RowValues::segments},
};

EngineOptions engine_over(const char* ranks) {
  EngineOptions options = small_engine();
  options.ranks = rank_layout(ranks);
  return options;
}

std::vector<TrainSequence> sampled(Bench& bench) { return sample(bench.engine, sample_requests(bench.runtime.model->facts().vocabulary)); }

TEST(KeptOverRanks, AreWhatOneRankComputes) {
  const char* families[] = {"glm_moe_dsa", "qwen3_moe", "llama"};
  std::size_t way = 0;
  for (const RanksCase& ranks : kRanksThatRead) {
    const char* family = families[way % 3];
    SCOPED_TRACE(fmt::format("{}, engine {}, {}", ranks.trainer, ranks.engine, family));
    TrainerOptions options{.micro_batch = way % 2 ? 2 : 0, .checkpoint_activations = way % 3 != 0, .share_prefixes = true};
    options.ranks = rank_layout(ranks.trainer);
    ++way;
    Bench bench(tiny_config(family), "cpu-bf16w", options, engine_over(ranks.engine), {ranks.values}, {.threads = 1});
    const double rate = bench.runtime.model->facts().router_biases.empty() ? 0.0 : 1e-2;
    for (int step = 0; step < 2; ++step) {
      const auto data = sampled(bench);
      EXPECT_GT(bench.kept->statistics().bytes, 0);
      const SegmentRows before = bench.rows();
      const Outcome got = step_of(bench.reading, data, rate), want = step_of(bench.plain, data, rate);
      EXPECT_EQ(got, want);
      const SegmentRows rows = bench.rows() - before;
      EXPECT_EQ(rows.made, 0);
      EXPECT_GT(rows.read, 0);
      EXPECT_EQ(rows.read, rows.asked);              // each row once, however many ranks read it
      EXPECT_EQ(bench.kept->statistics().bytes, 0);  // of weights that are not the newest
      bench.engine.set_weights(bench.reading.weights());
    }
    EXPECT_EQ(bench.reading.ranks().work().fault(), "");
    EXPECT_EQ(bench.engine.counters().work.fault(), "");
  }
}

TEST(KeptOverRanks, OthersAreComputedBesideThem) {
  for (const RanksCase& ranks : {kRanksThatRead[1], kRanksThatRead[3], kRanksThatRead[5]}) {
    SCOPED_TRACE(ranks.trainer);
    TrainerOptions options{.checkpoint_activations = true, .share_prefixes = true};
    options.ranks = rank_layout(ranks.trainer);
    Bench bench(tiny_config("qwen3_moe"), "cpu-bf16w", options, engine_over(ranks.engine), {ranks.values}, {.threads = 1});
    const std::int64_t vocabulary = bench.runtime.model->facts().vocabulary;
    std::vector<Request> requests = sample_requests(vocabulary);
    for (std::size_t i = 0; i < requests.size(); i += 2) requests[i].keep_forward = false;
    auto data = sample(bench.engine, requests);
    data.push_back(data[1]);
    data.back().tokens.back() = (data.back().tokens.back() + 1) % static_cast<std::int32_t>(vocabulary);
    const Outcome got = step_of(bench.reading, data), want = step_of(bench.plain, data);
    EXPECT_EQ(got, want);
    EXPECT_GT(bench.rows().made, 0);
    EXPECT_GT(bench.rows().read, 0);
    EXPECT_EQ(bench.reading.ranks().work().fault(), "");
  }
}

TEST(KeptOverRanks, StayWithinTheirMemory) {
  for (const std::int64_t pages : {0, 7, 20}) {
    TrainerOptions options{.checkpoint_activations = true};
    options.ranks = rank_layout("tp=2,dp=2");
    Bench bench(tiny_config("qwen3"), "cpu-bf16w", options, engine_over("tp=2"), {.pages = pages}, {.threads = 1});
    const auto data = sampled(bench);
    EXPECT_LE(bench.kept->statistics().most, pages * bench.kept->layout().page_bytes());
    EXPECT_GT(bench.kept->statistics().dropped, 0);
    EXPECT_EQ(step_of(bench.reading, data), step_of(bench.plain, data)) << pages;
    EXPECT_GT(bench.rows().made, 0) << pages;
  }
}

// Between one rank's look and another's an engine may drop a page: then no rank reads it.
TEST(KeptOverRanks, WhatOneRankDoesNotFindNoneReads) {
  Bench bench(tiny_config("llama"), "cpu-f32", {.checkpoint_activations = true}, small_engine());
  const auto data = sampled(bench);
  const KeptForwards::Root root{bench.reading.weights()->identity, 0, 0}, nothing{};
  ThreadRanks ranks(rank_layout("tp=2"));
  const auto read = [&](bool by_both) {
    std::vector<std::int64_t> rows(2);
    std::vector<std::vector<std::size_t>> missing(2);
    ranks.run([&](int rank) {
      std::vector<KeptForward::Slice> slices;
      for (std::size_t i = 0; i < 2; ++i) slices.push_back({i == 1 && rank == 1 && !by_both ? nothing : root, 0, i, &data[i], 0, std::ssize(data[i].tokens)});
      const KeptForward kept(bench.runtime.backend, bench.kept, slices, &ranks.model(rank));
      rows[static_cast<std::size_t>(rank)] = kept.rows_read();
      missing[static_cast<std::size_t>(rank)] = kept.missing(0);
    });
    EXPECT_EQ(rows[0], rows[1]);
    EXPECT_EQ(missing[0], by_both ? std::vector<std::size_t>() : std::vector<std::size_t>{1});
    EXPECT_EQ(missing[1], missing[0]);
    return rows[0];
  };
  EXPECT_EQ(read(true), std::ssize(data[0].tokens) + std::ssize(data[1].tokens));
  EXPECT_EQ(read(false), std::ssize(data[0].tokens));
}

TEST(KeptOverRanks, LayoutsThatFindNoWholeRowsComputeThem) {
  constexpr RanksCase kRanksThatCompute[] = {{"pp=2", "", RowValues::segments},
                                             {"dp=2,shard=weights", "", RowValues::segments},
                                             {"ep=2,rows=dealt", "", RowValues::segments},
                                             {"tp=2", "", RowValues::operations}};
  for (const RanksCase& ranks : kRanksThatCompute) {
    SCOPED_TRACE(ranks.trainer);
    TrainerOptions options{.checkpoint_activations = true};
    options.ranks = rank_layout(ranks.trainer);
    EXPECT_FALSE(keeps_over_ranks(options.ranks, ranks.values, BackendKind::cpu));
    Bench bench(tiny_config("qwen3_moe"), "cpu-f32", options, small_engine(), {ranks.values}, {.threads = 1});
    const auto data = sampled(bench);
    EXPECT_GT(bench.kept->statistics().bytes, 0);
    EXPECT_EQ(step_of(bench.reading, data), step_of(bench.plain, data));
    EXPECT_EQ(bench.rows().read, 0);
  }
  for (const RanksCase& ranks : kRanksThatRead) {
    EXPECT_TRUE(keeps_over_ranks(rank_layout(ranks.trainer), ranks.values, BackendKind::cpu)) << ranks.trainer;
    EXPECT_FALSE(keeps_over_ranks(rank_layout(ranks.trainer), ranks.values, BackendKind::deferred)) << ranks.trainer;
  }
  // Operations of an engine's tp ranks are shares: its requests keep nothing.
  Bench bench(tiny_config("llama"), "cpu-f32", {}, engine_over("tp=2"), {RowValues::operations}, {.threads = 1});
  sampled(bench);
  EXPECT_EQ(bench.kept->statistics().kept, 0);
}

TEST(KeptOverRanks, AreAnAdaptersToo) {
  constexpr std::pair<const char*, const char*> kLayouts[] = {{"tp=2", "tp=2"}, {"dp=2", ""}, {"tp=2,dp=2", ""}};
  for (const auto& [trained, served] : kLayouts) {
    SCOPED_TRACE(trained);
    Bench bench(tiny_config("llama"), "cpu-bf16w", {}, engine_over(served), {}, {.threads = 1});
    Runtime& runtime = bench.runtime;
    const auto weights = make_weight_set(runtime.backend, runtime.model->manifest(), bench.masters, runtime.profile, 1);
    const auto layout = std::make_shared<const AdapterLayout>(runtime.model->manifest(), AdapterSettings{.rank = 4});
    TrainerOptions options{.checkpoint_activations = true, .share_prefixes = true};
    AdapterTrainer plain(std::make_shared<FrozenBase>(runtime, weights, options), layout, initial_adapter(*layout, 1));
    options.ranks = rank_layout(trained);
    const auto base = std::make_shared<FrozenBase>(runtime, weights, bench.with(options));
    AdapterTrainer reading(base, layout, initial_adapter(*layout, 1));
    const auto rows_read = [&] { return base->work().segment_rows.read; };
    bench.engine.set_weights(weights);
    const std::vector<Request> of_base = sample_requests(runtime.model->facts().vocabulary);
    AdamParameters adam;
    adam.learning_rate = 1e-2;
    for (int step = 0; step < 2; ++step) {
      std::vector<Request> requests = of_base;
      for (Request& request : requests) request.adapter = reading.weights();
      const auto data = sample(bench.engine, requests);
      const std::int64_t before = rows_read();
      EXPECT_EQ(bits(reading.forward_backward(data, {}).logprobs), bits(plain.forward_backward(data, {}).logprobs));
      EXPECT_GT(rows_read(), before);
      reading.optim_step(adam);
      plain.optim_step(adam);
      EXPECT_EQ(images_hash(layout->manifest(), reading.state().masters()), images_hash(layout->manifest(), plain.state().masters()));
      EXPECT_EQ(bench.kept->statistics().bytes, 0);
    }
    // Of an adapter that no engine has had nothing is kept: what was sampled without any is not its.
    const auto data = sample(bench.engine, of_base);
    EXPECT_GT(bench.kept->statistics().bytes, 0);
    const std::int64_t before = rows_read();
    const auto of_adapter = bits(plain.score(data));
    EXPECT_EQ(bits(reading.score(data)), of_adapter);
    EXPECT_EQ(rows_read(), before);
    EXPECT_NE(bits(base->score(data)), of_adapter);  // they are other numbers,
    EXPECT_GT(rows_read(), before);                  // which the base's own scores read
  }
}

TEST(KeptOverRanks, OneWrongBitIsFound) {
  for (const RanksCase& ranks : {kRanksThatRead[1], kRanksThatRead[2]})
    for (const bool gradient : {true, false}) {
      SCOPED_TRACE(fmt::format("{} {}", ranks.trainer, gradient));
      TrainerOptions options{.checkpoint_activations = true};
      options.ranks = rank_layout(ranks.trainer);
      Bench bench(tiny_config("llama"), "cpu-f32", options, small_engine(), {ranks.values, -1, 1}, {.threads = 1});
      const auto data = sampled(bench);
      const auto run = [&] {
        if (gradient) bench.reading.forward_backward(data, {});
        else bench.reading.score(data);
      };
      std::int64_t rows = 0;
      for (const TrainSequence& d : data) rows += std::ssize(d.tokens);
      EXPECT_EQ(refusal_of(run), "");  // nothing is wrong yet
      if (ranks.values == RowValues::segments) {
        EXPECT_EQ(bench.kept->statistics().compared, rows);  // by the first rank, though each compares
      } else {
        EXPECT_GE(bench.kept->statistics().compared, rows);
      }
      if (gradient) bench.reading.abandon_gradients();
      plant_wrong_bit(bench, data[4], 6, 1);
      const std::string refusal = refusal_of(run);
      EXPECT_NE(refusal.find("what was kept of its forward is not what is computed now"), std::string::npos) << refusal;
      bench.reading.restore(bench.reading.state().all());
      EXPECT_EQ(step_of(bench.reading, data), step_of(bench.plain, data));
    }
}

// The control: nobody compares, and what is learned is another thing.
TEST(KeptOverRanks, AWrongBitThatNobodyLooksForIsLearned) {
  TrainerOptions options{.checkpoint_activations = true};
  options.ranks = rank_layout("tp=2");
  Bench bench(tiny_config("llama"), "cpu-f32", options, small_engine(), {}, {.threads = 1});
  const auto data = sampled(bench);
  plant_wrong_bit(bench, data[4], 6, bench.kept->layout().values() - 1);
  EXPECT_NE(step_of(bench.reading, data).masters, step_of(bench.plain, data).masters);
}

}  // namespace
}  // namespace lockstep::kept_tests
