// What an engine kept of its forwards (model/kept_forwards.h) is what a trainer of the same weights would compute: gradients, losses and
// log-probabilities are those of a trainer that computes everything, in all families, and one wrong bit is found.
#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "system/kept_test_tools.h"

namespace lockstep::kept_tests {
namespace {

TEST(KeptForwards, AreWhatATrainerComputesInAllFamilies) {
  for (const std::string& family : all_families())
    for (const RowValues values : kBoth) {
      const char* profile = values == RowValues::segments ? "cpu-f32" : "cpu-bf16w";
      SCOPED_TRACE(family + " " + profile);
      Bench bench(tiny_config(family), profile, {.checkpoint_activations = true, .share_prefixes = true}, small_engine(), {values});
      const double rate = bench.runtime.model->facts().router_biases.empty() ? 0.0 : 1e-2;  // loads are counted once
      for (int step = 0; step < 2; ++step) {
        const auto data = sample(bench.engine, sample_requests(bench.runtime.model->facts().vocabulary));
        const SegmentRows before = bench.rows();
        const Outcome got = step_of(bench.reading, data, rate), want = step_of(bench.plain, data, rate);
        EXPECT_EQ(got, want);
        const SegmentRows rows = bench.rows() - before;
        EXPECT_EQ(rows.made, 0);
        EXPECT_GT(rows.read, 0);
        EXPECT_EQ(rows.again, rows.read / 2);  // of the gradient, not of the scores
        EXPECT_EQ(bench.reading.ranks().work().fault(), "");
        EXPECT_EQ(bench.engine.counters().work.fault(), "");
        EXPECT_EQ(bench.kept->statistics().bytes, 0);  // of weights that are not the newest
        bench.engine.set_weights(bench.reading.weights());
      }
    }
}

// The bits of one machine are those of all.
TEST(KeptForwards, AreTheSameOfEveryInstructionSetAndNumberOfThreads) {
  std::vector<std::pair<InstructionSet, int>> places = {{InstructionSet::scalar, 2}, {widest_instruction_set(), 1}, {widest_instruction_set(), 3}};
  if (widest_instruction_set() == InstructionSet::avx512) places.emplace_back(InstructionSet::avx2, 2);
  std::optional<Outcome> want;  // of the first one, computed
  for (const RowValues values : kBoth)
    for (const auto& [isa, threads] : places) {
      SCOPED_TRACE(fmt::format("{} {} {}", static_cast<int>(values), instruction_set_name(isa), threads));
      Bench bench(tiny_config("qwen3_moe"), "cpu-bf16w", {.checkpoint_activations = true, .share_prefixes = true}, small_engine(), {values},
                  {.isa = isa, .threads = threads});
      const auto data = sample(bench.engine, sample_requests(bench.runtime.model->facts().vocabulary));
      if (!want) want = step_of(bench.plain, data);
      EXPECT_EQ(step_of(bench.reading, data), *want);
      EXPECT_EQ(bench.rows().made, 0);
      EXPECT_GT(bench.rows().read, 0);
    }
}

// Chunks, little room for pages, others beside, pages of one position: rows arrive in any order and more than once.
TEST(KeptForwards, AreWholeHoweverTheEngineRuns) {
  const std::vector<EngineOptions> ways = {{.page_size = 1, .cache_pages = 400},
                                           {.page_size = 4, .cache_pages = 9, .max_batch_rows = 7, .prefill_chunk = 3},
                                           {.page_size = 16, .cache_pages = 5, .prefix_cache = false},
                                           {.page_size = 4, .cache_pages = 40, .max_sequences = 2},
                                           {.page_size = 4, .cache_pages = 60, .drafts = parse_drafts("ngram", 3)}};
  std::int64_t preemptions = 0, evictions = 0, chunks = 0;
  for (std::size_t way = 0; way < ways.size(); ++way) {
    SCOPED_TRACE(way);
    Bench bench(tiny_config("qwen3"), "cpu-bf16w", {.checkpoint_activations = true}, ways[way], {kBoth[way % 2]});
    const auto data = sample(bench.engine, sample_requests(bench.runtime.model->facts().vocabulary));
    EXPECT_EQ(step_of(bench.reading, data), step_of(bench.plain, data));
    EXPECT_EQ(bench.rows().made, 0);
    EXPECT_GT(bench.rows().read, 0);
    const EngineCounters& counted = bench.engine.counters();
    preemptions += counted.preemptions, evictions += counted.evictions, chunks += counted.chunks;
  }
  EXPECT_GT(preemptions, 0);
  EXPECT_GT(evictions, 0);
  EXPECT_GT(chunks, 0);
}

TEST(KeptForwards, AreReadByEveryKindOfPass) {
  const Json config = tiny_config("qwen3_moe");
  const auto run = [&](const TrainerOptions& options, RowValues values) {
    Bench bench(config, "cpu-f32", options, small_engine(), {values});
    const auto data = sample(bench.engine, sample_requests(bench.runtime.model->facts().vocabulary));
    EXPECT_EQ(step_of(bench.reading, data), step_of(bench.plain, data));
    EXPECT_EQ(bench.rows().made, 0);
  };
  for (const RowValues values : kBoth) {
    run({}, values);
    run({.micro_batch = 2}, values);
    run({.share_prefixes = true}, values);
  }
}

// Some sequences were kept, and of others there is nothing, or not all of it.
TEST(KeptForwards, OthersAreComputedBesideThem) {
  for (const RowValues values : kBoth)
    for (const bool share : {false, true}) {
      Bench bench(tiny_config("qwen2"), "cpu-bf16w", {.checkpoint_activations = true, .share_prefixes = share}, small_engine(), {values});
      std::vector<Request> requests = sample_requests(bench.runtime.model->facts().vocabulary);
      for (std::size_t i = 0; i < requests.size(); i += 2) requests[i].keep_forward = false;
      auto data = sample(bench.engine, requests);
      data.push_back(data[1]);
      data.back().tokens.back() = (data.back().tokens.back() + 1) % static_cast<std::int32_t>(bench.runtime.model->facts().vocabulary);
      const Outcome got = step_of(bench.reading, data), want = step_of(bench.plain, data);
      EXPECT_EQ(got, want);
      EXPECT_GT(bench.rows().made, 0);
      EXPECT_GT(bench.rows().read, 0);
      EXPECT_EQ(bench.reading.ranks().work().fault(), "");
    }
}

TEST(KeptForwards, StayWithinTheirMemory) {
  for (const std::int64_t pages : {0, 1, 7, 20}) {
    Bench bench(tiny_config("qwen3"), "cpu-bf16w", {.checkpoint_activations = true}, small_engine(), {.pages = pages});
    const auto data = sample(bench.engine, sample_requests(bench.runtime.model->facts().vocabulary));
    EXPECT_LE(bench.kept->statistics().most, pages * bench.kept->layout().page_bytes());
    EXPECT_GT(bench.kept->statistics().dropped, 0);
    EXPECT_EQ(step_of(bench.reading, data), step_of(bench.plain, data)) << pages;
    EXPECT_GT(bench.rows().made, 0) << pages;
    if (pages == 20) {
      EXPECT_GT(bench.rows().read, 0);
    }
  }
}

TEST(KeptForwards, OfOtherWeightsAreNotRead) {
  Bench bench(tiny_config("qwen3"), "cpu-f32", {.checkpoint_activations = true}, small_engine());
  const auto data = sample(bench.engine, sample_requests(bench.runtime.model->facts().vocabulary));
  EXPECT_GT(bench.kept->statistics().bytes, 0);
  bench.reading.restore(bench.reading.state().all());  // the same numbers, and another version
  EXPECT_EQ(bench.kept->statistics().bytes, 0);
  step_of(bench.reading, data);
  EXPECT_EQ(bench.rows().read, 0);
  sample(bench.engine, sample_requests(bench.runtime.model->facts().vocabulary));  // on the earlier weights
  EXPECT_GT(bench.kept->statistics().bytes, 0);
  step_of(bench.reading, data);
  EXPECT_EQ(bench.rows().read, 0);
}

TEST(KeptForwards, OfAnotherOwnerAreNotRead) {
  Bench bench(tiny_config("qwen3"), "cpu-f32", {.checkpoint_activations = true, .kept_owner = 7}, small_engine());
  for (const std::uint64_t owner : {std::uint64_t{8}, std::uint64_t{0}, std::uint64_t{7}}) {
    std::vector<Request> requests = sample_requests(bench.runtime.model->facts().vocabulary);
    for (Request& request : requests) request.prefix_owner = owner;
    const std::int64_t kept = bench.kept->statistics().kept;
    const auto data = sample(bench.engine, requests);
    EXPECT_GT(bench.kept->statistics().kept, kept) << owner;  // the rows of another are no reason to keep none
    EXPECT_EQ(bits(bench.reading.score(data)), bits(bench.plain.score(data)));
    EXPECT_EQ(bench.rows().read > 0, owner == 7) << owner;
  }
}

TEST(KeptForwards, AreAnAdaptersToo) {
  Bench bench(tiny_config("llama"), "cpu-bf16w", {}, small_engine());
  Runtime& runtime = bench.runtime;
  const auto weights = make_weight_set(runtime.backend, runtime.model->manifest(), bench.masters, runtime.profile, 1);
  const auto layout = std::make_shared<const AdapterLayout>(runtime.model->manifest(), AdapterSettings{.rank = 4});
  TrainerOptions options{.checkpoint_activations = true, .share_prefixes = true};
  AdapterTrainer plain(std::make_shared<FrozenBase>(runtime, weights, options), layout, initial_adapter(*layout, 1));
  AdapterTrainer reading(std::make_shared<FrozenBase>(runtime, weights, bench.with(options)), layout, initial_adapter(*layout, 1));
  bench.engine.set_weights(weights);
  for (int step = 0; step < 2; ++step) {
    std::vector<Request> requests = sample_requests(runtime.model->facts().vocabulary);
    for (Request& request : requests) request.adapter = reading.weights();
    const auto data = sample(bench.engine, requests);
    EXPECT_GT(bench.kept->statistics().bytes, 0);
    EXPECT_EQ(bits(reading.forward_backward(data, {}).logprobs), bits(plain.forward_backward(data, {}).logprobs));
    reading.optim_step({}), plain.optim_step({});
    EXPECT_EQ(images_hash(layout->manifest(), reading.state().masters()), images_hash(layout->manifest(), plain.state().masters()));
    EXPECT_EQ(bench.kept->statistics().bytes, 0);
  }
}

TEST(KeptForwards, OneWrongBitIsFound) {
  for (const RowValues values : kBoth)
    for (const bool gradient : {true, false})
      for (const std::int64_t value : {0, 1}) {
        SCOPED_TRACE(fmt::format("{} {} {}", static_cast<int>(values), gradient, value));
        Bench bench(tiny_config("llama"), "cpu-f32", {.checkpoint_activations = true}, small_engine(), {values, -1, 1});
        ASSERT_GE(bench.kept->layout().values(), 2);
        const auto data = sample(bench.engine, sample_requests(bench.runtime.model->facts().vocabulary));
        const auto run = [&] {
          if (gradient) bench.reading.forward_backward(data, {});
          else bench.reading.score(data);
        };
        EXPECT_EQ(refusal_of(run), "");  // nothing is wrong yet
        EXPECT_GT(bench.kept->statistics().compared, 0);
        if (gradient) bench.reading.abandon_gradients();
        plant_wrong_bit(bench, data[4], 6, value);
        const std::string refusal = refusal_of(run);
        EXPECT_NE(refusal.find("what was kept of its forward is not what is computed now"), std::string::npos) << refusal;
        EXPECT_NE(refusal.find("bits 0x"), std::string::npos) << refusal;
        // The trainer is as before, and computes what is not kept.
        bench.reading.restore(bench.reading.state().all());
        EXPECT_EQ(step_of(bench.reading, data), step_of(bench.plain, data));
      }
}

// The control: nobody compares, and what is learned is another thing.
TEST(KeptForwards, AWrongBitThatNobodyLooksForIsLearned) {
  Bench bench(tiny_config("llama"), "cpu-f32", {.checkpoint_activations = true}, small_engine());
  const auto data = sample(bench.engine, sample_requests(bench.runtime.model->facts().vocabulary));
  plant_wrong_bit(bench, data[4], 6, bench.kept->layout().values() - 1);
  EXPECT_NE(step_of(bench.reading, data).masters, step_of(bench.plain, data).masters);
}

TEST(KeptForwards, OneRowInSoManyIsCompared) {
  Bench bench(tiny_config("qwen3"), "cpu-f32", {.checkpoint_activations = true}, small_engine(), {.verify_every = 7});
  const auto data = sample(bench.engine, sample_requests(bench.runtime.model->facts().vocabulary));
  std::int64_t rows = 0;
  for (const TrainSequence& d : data) rows += std::ssize(d.tokens);
  bench.reading.forward_backward(data, {});
  EXPECT_EQ(bench.kept->statistics().compared, (rows + 6) / 7);
}

}  // namespace
}  // namespace lockstep::kept_tests
