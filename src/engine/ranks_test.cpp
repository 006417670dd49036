// Generation and scoring on ranks that share the model have the bits of one rank.
#include <set>

#include "base/error.h"
#include "engine/changed_weights_test_tools.h"
#include "engine/engine_test_tools.h"
#include "model/adapter_test_tools.h"
#include "parallel/some_ranks_test_tools.h"

namespace lockstep {
namespace {

constexpr const char* kDense = R"({
  "model_type": "qwen3", "vocab_size": 150, "hidden_size": 80, "num_hidden_layers": 2, "num_attention_heads": 6,
  "num_key_value_heads": 3, "head_dim": 32, "max_position_embeddings": 1024, "intermediate_size": 320, "rms_norm_eps": 1e-6,
  "rope_theta": 10000.0, "tie_word_embeddings": false, "hidden_act": "silu"})";

// Its table, in few bits too, is cut by tokens: for 128 of fp8 whole leaves stay together.
constexpr const char* kTied = R"({
  "model_type": "llama", "vocab_size": 256, "hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 8,
  "num_key_value_heads": 4, "head_dim": 32, "max_position_embeddings": 1024, "intermediate_size": 512, "rms_norm_eps": 1e-5,
  "rope_theta": 10000.0, "tie_word_embeddings": true, "hidden_act": "silu"})";

const std::vector<RankLayout> kLayouts = {{2, 1, 1}, {3, 1, 1}, {4, 1, 1},    {8, 1, 1},    {1, 1, 2},
                                          {1, 1, 3}, {2, 1, 2}, {1, 1, 1, 2}, {1, 1, 1, 3}, {2, 1, 2, 2}};

void expect_bits_of_one_rank(Runtime& runtime, const std::shared_ptr<const WeightSet>& weights, const std::string& what,
                             const std::vector<RankLayout>& layouts = kLayouts) {
  std::vector<Request> requests = random_requests(12, 5, runtime.model->facts().vocabulary);
  for (Request& r : requests) r.experts = r.experts && runtime.model->facts().expert_shape().row() > 0;
  for (std::size_t i = 0; i < requests.size(); i += 3) requests[i].sampling.top_logprobs = 3;
  EngineOptions options{.page_size = 4, .cache_pages = 60, .max_batch_rows = 48, .prefill_chunk = 16};
  Engine one(runtime, weights, options);
  const auto want = bits_of(one.generate(requests));
  for (const RankLayout& ranks : layouts) {
    SCOPED_TRACE(what + ", " + ranks.text());
    options.ranks = ranks;
    Engine engine(runtime, weights, options);
    EXPECT_EQ(bits_of(engine.generate(requests)), want);
    if (ranks.tp > 1 || runtime.model->facts().expert_count > 0 || (ranks.pp > 1 && runtime.model->segments() > 1)) {
      EXPECT_GT(engine.rank_steps().traffic().bytes, 0);
    }
    EXPECT_GT(engine.counters().mixed_batches, 0);
  }
}

TEST(EngineRanks, GenerationHasTheBitsOfOneRank) {
  for (const BackendOptions& backend : {BackendOptions{.threads = 1}, BackendOptions{.kind = BackendKind::deferred, .threads = 1}}) {
    Plant plant("sharing", "cpu-bf16w", backend);
    expect_bits_of_one_rank(plant.runtime, plant.weights, "glm");
  }
  for (const auto& [config, profile] : {std::pair(kDense, "cpu-f32"), std::pair(kDense, "cpu-mxfp8"), std::pair(kTied, "cpu-int8w"),
                                        std::pair(kTied, "cpu-fp8-base"), std::pair(kDense, "cpu-int4-base")}) {
    Runtime runtime({.threads = 1}, make_model(Json::parse(config)), profile_by_name(profile), 128);
    const WeightImages images = initial_weights(runtime.model->manifest(), 3, 0.1);
    expect_bits_of_one_rank(runtime, make_weight_set(runtime.backend, runtime.model->manifest(), images, runtime.profile, 1),
                            std::string(runtime.model->family()) + ", " + profile);
  }
}

// No rank has a group of experts: outputs of single pairs are gathered.
TEST(EngineRanks, MoreRanksThanGroupsOfExpertsHaveTheBitsOfOneRank) {
  Plant plant("sharing", "cpu-bf16w", {.threads = 1});
  expect_bits_of_one_rank(plant.runtime, plant.weights, "glm", {{1, 1, 9}, {3, 1, 3}});
}

TEST(EngineRanks, NewWeightsReachEveryRank) {
  Plant plant("wide", "cpu-f32", {.threads = 1}), other("wide", "cpu-f32", {.threads = 1}, 128, 8);
  const std::vector<std::int32_t> tokens = {3, 1, 4, 1, 5, 9, 2, 6};
  Engine one(plant.runtime, plant.weights), two(plant.runtime, plant.weights, {.ranks = {2, 1, 2}});
  const auto next = make_weight_set(plant.runtime.backend, plant.runtime.model->manifest(), other.images, plant.runtime.profile, 2);
  const std::vector<float> before = prompt_scores(one, tokens);
  EXPECT_EQ(different_bits(prompt_scores(two, tokens), before), 0u);
  one.set_weights(next);
  two.set_weights(next);
  EXPECT_GT(different_bits(prompt_scores(one, tokens), before), 0u);
  EXPECT_EQ(different_bits(prompt_scores(two, tokens), prompt_scores(one, tokens)), 0u);
}

// Where the weights say how they differ from those that ranks have, each changes its share: in memory of its own, or where it stands.
TEST(EngineRanks, ChangesReachEveryRanksShare) {
  Plant plant("sharing", "cpu-bf16w", {.threads = 1});
  const std::vector<std::int32_t> tokens = {3, 1, 4, 1, 5, 9, 2, 6};
  const ChangedWeights beside = changed_weights(plant.runtime, plant.weights, 1, 1), there = changed_weights(plant.runtime, beside.weights, 2);
  there.changes->in_place = true;
  for (const RankLayout& ranks : {RankLayout{2, 1, 1}, RankLayout{2, 1, 2}, RankLayout{1, 1, 1, 2}}) {
    SCOPED_TRACE(ranks.text());
    Engine one(plant.runtime, plant.weights), many(plant.runtime, plant.weights, {.ranks = ranks});
    const auto held = [&] { return many.rank_steps().memory(1).current(MemoryCategory::weights); };
    const std::int64_t before = held();
    std::vector<float> last = prompt_scores(one, tokens);
    const auto expect_same_and_new = [&](const ChangedWeights& next) {
      one.set_weights(next.weights);
      many.set_weights(next.weights);
      const std::vector<float> now = prompt_scores(one, tokens);
      EXPECT_GT(different_bits(now, last), 0u);
      EXPECT_EQ(different_bits(prompt_scores(many, tokens), now), 0u);
      last = now;
    };
    expect_same_and_new(beside);
    const std::int64_t of_two = held() - before;  // of two parameters at most, where a share of all is `before`
    EXPECT_LT(of_two, before / 2);
    expect_same_and_new(there);
    EXPECT_EQ(held(), before + of_two);
    // Without the others' shares everything comes, and stands beside.
    const ChangedWeights alone = changed_weights(plant.runtime, there.weights, 3);
    alone.changes->from = WeightSet::next_identity();
    expect_same_and_new(alone);
    EXPECT_GT(held(), before + of_two);
  }
}

// Requests with three adapters, with none, and with weights of their own, mixed.
std::vector<Request> mixed_requests(Runtime& runtime, const std::vector<std::shared_ptr<const AdapterWeights>>& adapters,
                                    const std::shared_ptr<const WeightSet>& own) {
  std::vector<Request> requests = random_requests(14, 5, runtime.model->facts().vocabulary);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Request& r = requests[i];
    r.experts = r.experts && runtime.model->facts().expert_shape().row() > 0;
    if (i % 3 == 0) r.sampling.top_logprobs = 3;
    if (i % 4 > 0) r.adapter = adapters[i % 4 - 1];
    if (i % 5 == 4) r.weights = own;
  }
  return requests;
}

std::vector<std::shared_ptr<const AdapterWeights>> three_adapters(Runtime& runtime) {
  std::vector<std::shared_ptr<const AdapterWeights>> adapters;
  for (const std::int64_t rank : {3, 8, 4}) {
    const AdapterSettings settings{.rank = rank, .alpha = 7, .mlp = rank != 8, .unembedding = rank != 4};
    const auto layout = std::make_shared<const AdapterLayout>(runtime.model->manifest(), settings);
    adapters.push_back(make_adapter(runtime.backend, layout, stirred(*layout, static_cast<std::uint64_t>(rank)), 5));
  }
  return adapters;
}

void expect_mixed_bits_of_one_rank(Runtime& runtime, const std::shared_ptr<const WeightSet>& weights, const std::shared_ptr<const WeightSet>& own,
                                   const std::string& what) {
  EngineOptions options{.page_size = 4, .cache_pages = 90, .max_batch_rows = 48, .prefill_chunk = 16};
  Engine one(runtime, weights, options);
  auto adapters = three_adapters(runtime);
  const auto want = bits_of(one.generate(mixed_requests(runtime, adapters, own)));
  EXPECT_NE(want, bits_of(one.generate(mixed_requests(runtime, {adapters[1], adapters[2], adapters[0]}, own))));  // the control: other adapters are seen
  EXPECT_NE(want, bits_of(one.generate(mixed_requests(runtime, adapters, nullptr))));
  for (const RankLayout& ranks : {RankLayout{2, 1, 1}, {3, 1, 1}, {8, 1, 1}, {1, 1, 3}, {2, 1, 2}, {1, 1, 1, 2}, {2, 1, 1, 2}}) {
    SCOPED_TRACE(what + ", " + ranks.text());
    options.ranks = ranks;
    Engine engine(runtime, weights, options);
    const std::vector<Request> requests = mixed_requests(runtime, adapters, own);
    EXPECT_EQ(bits_of(engine.generate(requests)), want);
    EXPECT_GT(engine.counters().most_adapters, 1);
    for (const std::size_t alone : {std::size_t{1}, std::size_t{9}}) EXPECT_EQ(bits_of(engine.generate({requests[alone]}))[0], want[alone]);
  }
  // The ranks let go of what nobody has any more.
  options.ranks = {2, 1, 1};
  Engine engine(runtime, weights, options);
  const auto held = [&] { return engine.rank_steps().memory(1).current(MemoryCategory::weights); };
  engine.generate({{.prompt = {1, 2, 3}, .sampling = {.temperature = 0, .max_tokens = 2}}});
  const std::int64_t before = held();
  engine.generate(mixed_requests(runtime, adapters, nullptr));
  EXPECT_GT(held(), before);
  adapters.clear();
  engine.generate({{.prompt = {1, 2, 3}, .sampling = {.temperature = 0, .max_tokens = 2}}});
  EXPECT_EQ(held(), before);
}

TEST(EngineRanks, AdaptersAndWeightsOfRequestsHaveTheBitsOfOneRank) {
  for (const BackendOptions& backend : {BackendOptions{.threads = 1}, BackendOptions{.kind = BackendKind::deferred, .threads = 1}}) {
    Plant plant("sharing", "cpu-bf16w", backend), other("sharing", "cpu-bf16w", {.threads = 1}, 128, 8);
    const auto own = make_weight_set(plant.runtime.backend, plant.runtime.model->manifest(), other.images, plant.runtime.profile, 1);
    expect_mixed_bits_of_one_rank(plant.runtime, plant.weights, own, "glm");
  }
  for (const char* profile : {"cpu-f32", "cpu-int8w", "cpu-mxfp4-base"}) {
    Runtime runtime({.threads = 1}, make_model(Json::parse(kDense)), profile_by_name(profile), 128);
    const auto weights_of = [&](std::uint64_t seed) {
      return make_weight_set(runtime.backend, runtime.model->manifest(), initial_weights(runtime.model->manifest(), seed, 0.1), runtime.profile, 1);
    };
    expect_mixed_bits_of_one_rank(runtime, weights_of(3), weights_of(4), std::string("qwen3, ") + profile);
  }
}

// Fifty adapters at a time: each request has the bits that it has alone, and those of one rank.
TEST(EngineRanks, FiftyAdaptersAreToEachOtherAsIfTheyWereAlone) {
  constexpr std::size_t kAdapters = 50;
  Plant plant("sharing", "cpu-bf16w", {.threads = 1});
  Runtime& runtime = plant.runtime;
  const auto layout =
      std::make_shared<const AdapterLayout>(runtime.model->manifest(), AdapterSettings{.rank = 4, .alpha = 7, .mlp = true, .unembedding = true});
  std::vector<Request> requests;
  for (std::size_t i = 0; i < kAdapters; ++i) {
    Request& request = requests.emplace_back(Request{.prompt = {3, 1, 4, 1, 5, static_cast<std::int32_t>(i % 7)}, .sampling = {.max_tokens = 4}});
    request.sampling.seed = i % 5;
    request.adapter = make_adapter(runtime.backend, layout, stirred(*layout, i + 1), 5);
  }
  const EngineOptions options{.page_size = 4, .cache_pages = 400, .max_batch_rows = 128, .prefill_chunk = 16};
  Engine one(runtime, plant.weights, options);
  const auto want = bits_of(one.generate(requests));
  std::set<std::vector<std::uint32_t>> different(want.begin(), want.end());
  EXPECT_EQ(different.size(), kAdapters);  // the control: each adapter is seen
  for (const RankLayout& ranks : {RankLayout{2, 1, 1}, {2, 1, 2}, {1, 1, 1, 2}}) {
    SCOPED_TRACE(ranks.text());
    EngineOptions shared = options;
    shared.ranks = ranks;
    Engine together(runtime, plant.weights, shared), apart(runtime, plant.weights, shared);
    EXPECT_EQ(bits_of(together.generate(requests)), want);
    EXPECT_GT(together.counters().most_adapters, 20);
    for (std::size_t i = 0; i < kAdapters; ++i) EXPECT_EQ(bits_of(apart.generate({requests[i]}))[0], want[i]) << "adapter " << i << " alone";
    EXPECT_EQ(apart.counters().most_adapters, 1);
  }
}

// Requests that were under way end under the weights that they began with, on every rank.
TEST(EngineRanks, RequestsInFlightFinishOnTheOldWeights) {
  Plant plant("wide", "cpu-f32", {.threads = 1}), other("wide", "cpu-f32", {.threads = 1}, 128, 8);
  const auto told = [&](const RankLayout& ranks, bool change) {
    auto first = make_weight_set(plant.runtime.backend, plant.runtime.model->manifest(), plant.images, plant.runtime.profile, 1);
    Engine engine(plant.runtime, first, {.page_size = 4, .max_batch_rows = 8, .prefill_chunk = 4, .ranks = ranks});
    std::vector<std::int32_t> tokens;
    engine.submit({.prompt = {3, 1, 4, 1, 5}, .sampling = {.temperature = 0, .max_tokens = 12}}, {}, [&](Generation&& g) {
      for (const GeneratedToken& token : g.tokens) tokens.push_back(token.id);
    });
    for (int step = 0; step < 4; ++step) engine.step();
    if (change) {
      engine.set_weights(make_weight_set(plant.runtime.backend, plant.runtime.model->manifest(), other.images, plant.runtime.profile, 2), InFlight::finish);
      first.reset();
    }
    engine.run_until_idle();
    std::vector<float> after = prompt_scores(engine, {3, 1, 4, 1, 5, 9});
    return std::pair(tokens, after);
  };
  const auto want = told({}, true), same = told({}, false);
  EXPECT_EQ(want.first, same.first);
  EXPECT_GT(different_bits(want.second, same.second), 0u);  // the control: the new weights are there
  for (const RankLayout& ranks : {RankLayout{2, 1, 1}, {2, 1, 2}, {1, 1, 1, 2}}) {
    const auto got = told(ranks, true);
    EXPECT_EQ(got.first, want.first) << ranks.text();
    EXPECT_EQ(different_bits(got.second, want.second), 0u) << ranks.text();
  }
}

// Owners of some ranks each run the same plans; who has the first rank has the step's record, and all have its counts.
TEST(EngineRanks, OwnersOfSomeRanksRunTheStepsOfOne) {
  Plant plant("sharing", "cpu-f32", {.threads = 1});
  const EngineOptions options{.page_size = 4, .cache_pages = 30};
  const auto steps_of = [&](const EngineOptions& of, Runtime& runtime, std::unique_ptr<Ranks> ranks) {
    RankSteps steps(runtime, of, std::move(ranks));
    steps.set_weights(make_weight_set(runtime.backend, runtime.model->manifest(), plant.images, runtime.profile, 1));
    EngineCounters counters;
    Scheduler scheduler(of, of.cache_pages, counters);
    std::vector<Sequence> sequences(3);
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      sequences[i].id = i + 1;
      for (std::size_t t = 0; t < 5 + 4 * i; ++t) sequences[i].tokens.push_back(static_cast<std::int32_t>((7 * t + i) % 60));
      sequences[i].prompt_length = sequences[i].known();
      scheduler.add(sequences[i]);
    }
    const std::vector<PlannedSlice> plan = scheduler.plan();
    StepWants wants;
    want_as_asked(plan, 0, runtime.model->facts().vocabulary, wants);
    StepResult result;
    steps.run(plan, wants, result);
    std::vector<float> told;
    for (const StepResult::Sampled& s : result.all_sampled) told.insert(told.end(), {static_cast<float>(s.token), s.raw_logprob, s.sampling_logprob});
    return std::pair(told, result.work);
  };
  const auto want = steps_of(options, plant.runtime, nullptr);
  ASSERT_EQ(want.first.size(), 9u);
  EngineOptions shared = options;
  for (const RankLayout& layout : {RankLayout{2, 1, 2}, {2, 1, 1, 2}}) {
    SCOPED_TRACE(layout.text());
    shared.ranks = layout;
    std::vector<std::pair<std::vector<float>, ForwardCounts>> got(2);
    beside_each_other(shared.ranks, {1, 3}, [&](std::size_t owner, std::unique_ptr<Ranks> ranks) {
      Runtime runtime({.threads = 1}, plant.runtime.model, plant.runtime.profile, 128);
      got[owner] = steps_of(shared, runtime, std::move(ranks));
    });
    EXPECT_EQ(got[0].first, want.first);
    EXPECT_TRUE(got[1].first.empty());
    EXPECT_EQ(got[0].second, got[1].second);
    EXPECT_EQ(got[0].second, want.second);
  }
}

TEST(EngineRanks, ARankHoldsItsShareAlone) {
  Runtime runtime({.threads = 1}, make_model(Json::parse(kDense)), profile_by_name("cpu-f32"), 128);
  const WeightImages images = initial_weights(runtime.model->manifest(), 3, 0.1);
  const auto held = [&](const RankLayout& ranks) {
    const std::int64_t tables = runtime.backend.device().memory().current(MemoryCategory::weights);
    Engine engine(runtime, make_weight_set(runtime.backend, runtime.model->manifest(), images, runtime.profile, 1), {.cache_pages = 64, .ranks = ranks});
    std::vector<std::pair<std::int64_t, std::int64_t>> bytes;
    for (int rank = 0; rank < ranks.replica(); ++rank) {
      const MemoryAccounts& memory = engine.rank_steps().memory(rank);
      bytes.emplace_back(memory.current(MemoryCategory::weights) - tables, memory.current(MemoryCategory::cache));
    }
    return bytes;
  };
  const auto one = held({1, 1, 1})[0];
  std::int64_t cache = 0;
  for (const auto& [weights, entries] : held({2, 1, 1})) {
    EXPECT_LT(weights, one.first * 65 / 100);
    EXPECT_LT(entries, one.second);
    cache += entries;
  }
  EXPECT_EQ(cache, one.second);  // three key heads: two here, one there
  std::pair<std::int64_t, std::int64_t> stages{0, 0};
  for (const auto& [weights, entries] : held({1, 1, 1, 2})) {
    EXPECT_EQ(entries, one.second / 2);  // a layer each
    EXPECT_LT(weights, one.first * 65 / 100);
    stages = {stages.first + weights, stages.second + entries};
  }
  EXPECT_EQ(stages, one);
}

// What is no number in one stage of a pipeline fails the request that meets it, with the words of one rank, and no other.
TEST(EngineRanks, ANanInOneStageIsSeenByTheOneThatSamples) {
  Plant plant("sharing", "cpu-f32", {.threads = 1});
  const Manifest& manifest = plant.runtime.model->manifest();
  const auto with_nan = [&](std::int64_t segment) {
    WeightImages images = plant.images;
    for (std::size_t i = 0; i < images.size(); ++i) {
      const Parameter& p = manifest.parameters()[i];
      const bool embedding = p.layout == ParameterLayout::table && p.outputs == plant.runtime.model->facts().vocabulary;
      if (segment < 0 ? !embedding : p.segment != segment || p.outputs > 1) continue;
      for (std::int64_t k = 0; k < p.inputs; ++k)
        images[i][static_cast<std::size_t>(p.offset(0, segment < 0 ? 11 : 0, k))] = std::numeric_limits<float>::quiet_NaN();
    }
    return make_weight_set(plant.runtime.backend, manifest, images, plant.runtime.profile, 2);
  };
  std::vector<Request> requests;
  for (const std::int32_t token : {7, 11, 13}) requests.push_back({.prompt = {1, 2, 3, token, 5, 6}, .sampling = {.max_tokens = 4}});
  for (const std::int64_t segment : {std::int64_t{-1}, std::int64_t{0}, plant.runtime.model->segments() - 1}) {
    Engine one(plant.runtime, with_nan(segment)), stages(plant.runtime, with_nan(segment), {.ranks = {1, 1, 1, 2}});
    const std::vector<Generation> want = one.generate(requests), got = stages.generate(requests);
    for (std::size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(want[i].finish == FinishReason::error, segment >= 0 || i == 1);
      EXPECT_EQ(got[i].error, want[i].error) << i << " of " << segment;
      EXPECT_EQ(bits_of(got[i]), bits_of(want[i])) << i << " of " << segment;
    }
  }
}

// The control: ranks of another leaf count are not the same.
TEST(EngineRanks, AnotherLeafCountIsSeen) {
  Plant plant("wide", "cpu-bf16w", {.threads = 1}), other("wide", "study-leaves", {.threads = 1});
  std::vector<std::int32_t> tokens(40);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i * 7 % 50);
  Engine one(plant.runtime, plant.weights), two(other.runtime, other.weights, {.ranks = {2, 1, 1}});
  EXPECT_GT(different_bits(prompt_scores(one, tokens), prompt_scores(two, tokens)), 0u);
}

}  // namespace
}  // namespace lockstep
