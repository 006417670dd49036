// The engine on small random models: whatever runs beside a request, and however it is cut, cached or put back, its
// tokens and log-probabilities have the same bits; and what must not be accepted is not.
#include "engine/engine.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "engine/engine_test_tools.h"

namespace lockstep {
namespace {

// Each request in an engine of its own, in one chunk, on one thread without vectors, without a prefix cache.
std::vector<std::vector<std::uint32_t>> alone(const std::vector<Request>& requests, const std::string& config, const std::string& profile) {
  Plant plant(config, profile, {.isa = InstructionSet::scalar, .threads = 1});
  std::vector<std::vector<std::uint32_t>> bits;
  for (const Request& r : requests) {
    Engine engine(plant.runtime, plant.weights, {.page_size = 64, .cache_pages = 2, .prefix_cache = false});
    bits.push_back(bits_of(engine.generate({r})[0]));
  }
  return bits;
}

struct Ways {
  std::string config = "sharing", profile = "cpu-bf16w";
  std::vector<Request> requests;
  std::vector<std::vector<std::uint32_t>> expected;

  Ways(const std::string& c, const std::string& p, std::uint64_t seed, int count = 24) : config(c), profile(p) {
    requests = random_requests(count, seed, make_model(golden_config(c))->facts().vocabulary);
    expected = alone(requests, c, p);
  }
  EngineCounters run(const EngineOptions& options, const BackendOptions& backend, const std::string& what) const {
    Plant plant(config, profile, backend);
    Engine engine(plant.runtime, plant.weights, options);
    const auto got = bits_of(engine.generate(requests));
    std::size_t different = 0;
    for (std::size_t i = 0; i < got.size(); ++i) different += got[i] != expected[i];
    EXPECT_EQ(different, 0u) << what << ": of " << got.size() << " requests";
    const Scheduler& s = engine.scheduler();
    EXPECT_EQ(s.pages().free_pages() + s.prefix_cache().idle(), s.pages().total()) << what;
    return engine.counters();
  }
};

TEST(Engine, BitsDoNotDependOnCompanyChunksPagesOrCache) {
  const Ways ways("sharing", "cpu-bf16w", 1);
  std::int64_t hits = 0, chunks = 0, mixed = 0;
  for (std::int64_t page_size : {1, 4, 16})
    for (std::int64_t chunk : {1, 3, 128})
      for (bool prefix_cache : {false, true}) {
        const EngineCounters c =
            ways.run({.page_size = page_size, .cache_pages = 1024 / page_size, .max_batch_rows = 48, .prefill_chunk = chunk, .prefix_cache = prefix_cache},
                     {.threads = 1}, fmt::format("page {}, chunk {}, cache {}", page_size, chunk, prefix_cache));
        EXPECT_TRUE(prefix_cache || c.cache_hit_tokens == 0);
        hits += c.cache_hit_tokens;
        chunks += c.chunks;
        mixed += c.mixed_batches;
      }
  EXPECT_GT(hits, 0);
  EXPECT_GT(chunks, 0);
  EXPECT_GT(mixed, 0);
}

TEST(Engine, BitsDoNotDependOnPreemption) {
  const Ways ways("sharing", "cpu-bf16w", 2);
  for (bool prefix_cache : {false, true}) {
    const EngineCounters c = ways.run({.page_size = 4, .cache_pages = 20, .max_batch_rows = 32, .prefill_chunk = 7, .prefix_cache = prefix_cache},
                                      {.threads = 1}, prefix_cache ? "few pages, cache" : "few pages");
    EXPECT_GT(c.preemptions, 0);
    EXPECT_EQ(c.evictions > 0, prefix_cache);
  }
}

TEST(Engine, BitsDoNotDependOnThreadsInstructionsOrBackend) {
  const EngineOptions options{.page_size = 4, .cache_pages = 60, .max_batch_rows = 40, .prefill_chunk = 9};
  for (const char* profile : {"cpu-f32", "cpu-bf16w"}) {
    const Ways ways("sharing", profile, 3);
    for (InstructionSet isa : {InstructionSet::scalar, InstructionSet::avx2, InstructionSet::avx512}) {
      if (!machine_has(isa)) continue;
      for (int threads : {1, 2})
        ways.run(options, {.isa = isa, .threads = threads}, fmt::format("{} {} threads {}", profile, instruction_set_name(isa), threads));
    }
    ways.run(options, {.kind = BackendKind::deferred, .threads = 2}, fmt::format("{} deferred", profile));
  }
  Ways("sharing", "cpu-bf16w", 4, 5).run(options, {.kind = BackendKind::traced, .threads = 2}, "traced");
}

TEST(Engine, DenseRangeAndWideModelsAgreeToo) {
  for (const char* config : {"dense-range", "wide"}) {
    const Ways ways(config, "cpu-bf16w", 4);
    ways.run({.page_size = 4, .cache_pages = 40, .max_batch_rows = 40, .prefill_chunk = 9}, {.threads = 2}, config);
  }
}

TEST(Engine, APromptIsFoundAgainByItsOwnerAlone) {
  Plant plant("wide");
  Engine engine(plant.runtime, plant.weights, {.page_size = 4});
  RandomSequence draws(9, RandomStream::fuzz);
  Request request{.prompt = random_tokens(draws, 33, plant.runtime.model->facts().vocabulary), .sampling = {.seed = 3, .max_tokens = 5}};
  const auto ask = [&](std::uint64_t owner) {
    request.prefix_owner = owner;
    const std::int64_t before = engine.counters().prefill_tokens;
    const Generation g = engine.generate({request})[0];
    EXPECT_EQ(engine.counters().prefill_tokens - before, 33 - g.cached_tokens);  // what is not told is computed: it takes as long, too
    return std::pair(g.cached_tokens, bits_of(g));
  };
  const auto first = ask(1);
  EXPECT_EQ(first.first, 0);
  for (const auto& [owner, cached] : {std::pair(2, 0), std::pair(1, 32), std::pair(2, 32), std::pair(0, 0), std::pair(3, 0)}) {
    const auto again = ask(static_cast<std::uint64_t>(owner));
    EXPECT_EQ(again.first, cached) << owner;
    EXPECT_EQ(again.second, first.second) << owner;
  }
}

// One row at a time, as if decoding; put back in the middle; then from the cache, whose positions have no log-probabilities.
TEST(Engine, APaceChangesNoBit) {
  Plant plant;
  Engine engine(plant.runtime, plant.weights, {.page_size = 4});
  const std::vector<std::int32_t> tokens = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5};
  const std::vector<float> expected = prompt_scores(engine, tokens);
  const auto scored = [&](const Pace& pace, int preempt_after) {
    std::vector<float> logprobs;
    const std::uint64_t id = engine.submit({.prompt = tokens, .sampling = {.max_tokens = 0}, .prompt_logprobs = true}, {},
                                           [&](Generation&& g) { logprobs = std::move(g.prompt_logprobs); });
    engine.set_pace(id, pace);
    for (int step = 0; engine.step(); ++step)
      if (step == preempt_after) engine.preempt(id);
    engine.set_pace(id, {});  // finished: ignored, and so is the next
    engine.preempt(id);
    return logprobs;
  };
  const EngineCounters before = engine.counters();
  EXPECT_EQ(different_bits(scored({.rows = 1, .decodes = true, .cached_pages = 0}, 6), expected), 0u);
  EXPECT_GE(engine.counters().decode_tokens - before.decode_tokens, 10);
  EXPECT_EQ(engine.counters().preemptions - before.preemptions, 1);
  const std::vector<float> cached = scored({.cached_pages = 1}, -1);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (i < 4) EXPECT_TRUE(std::isnan(cached[i])) << i;
    else EXPECT_EQ(std::bit_cast<std::uint32_t>(cached[i]), std::bit_cast<std::uint32_t>(expected[i])) << i;
  }
}

TEST(Engine, GeneratedLogProbabilitiesAreThoseOfScoring) {
  Plant plant;
  Engine engine(plant.runtime, plant.weights);
  for (const Generation& g : engine.generate(random_requests(6, 6, plant.runtime.model->facts().vocabulary))) ASSERT_NE(g.finish, FinishReason::error);
  for (const Request& request : random_requests(6, 6, plant.runtime.model->facts().vocabulary)) {
    const Generation g = engine.generate({request})[0];
    std::vector<std::int32_t> tokens = request.prompt;
    for (const GeneratedToken& t : g.tokens) tokens.push_back(t.id);
    const std::vector<float> scored = prompt_scores(engine, tokens);
    std::vector<float> raw, last(scored.end() - static_cast<std::ptrdiff_t>(g.tokens.size()), scored.end());
    for (const GeneratedToken& t : g.tokens) {
      raw.push_back(t.raw_logprob);
      EXPECT_TRUE(std::isfinite(t.sampling_logprob));
    }
    EXPECT_EQ(different_bits(raw, last), 0u);
    if (!request.prompt_logprobs) continue;
    EXPECT_EQ(different_bits(g.prompt_logprobs, {scored.begin(), scored.begin() + static_cast<std::ptrdiff_t>(request.prompt.size()) - 1}), 0u);
  }
}

// The control: another number of leaves must show.
TEST(Engine, AnotherLeafCountIsNoticed) {
  RandomSequence draws(8, RandomStream::fuzz);
  std::string study;
  for (const Profile& p : profiles())
    if (p.study && p.maximum_leaves != profile_by_name("cpu-bf16w").maximum_leaves && !p.bf16_activations) study = p.name;
  ASSERT_FALSE(study.empty());
  Plant plant("wide"), other("wide", study);
  Engine engine(plant.runtime, plant.weights), control(other.runtime, other.weights);
  const std::vector<std::int32_t> tokens = random_tokens(draws, 60, plant.runtime.model->facts().vocabulary);
  EXPECT_GT(different_bits(prompt_scores(engine, tokens), prompt_scores(control, tokens)), 0u);
}

TEST(Engine, CountersAreWhatTheLengthsImply) {
  Plant plant;
  const Model& model = *plant.runtime.model;
  Engine engine(plant.runtime, plant.weights, {.page_size = 16, .cache_pages = 16, .max_batch_rows = 64, .prefill_chunk = 8});
  engine.generate({{.prompt = std::vector<std::int32_t>(20, 3), .sampling = {.max_tokens = 5}}});
  const EngineCounters& c = engine.counters();
  EXPECT_EQ(c.rows, 24);  // the last token is not computed
  EXPECT_EQ(c.prefill_tokens, 20);
  EXPECT_EQ(c.decode_tokens, 4);
  EXPECT_EQ(c.chunks, 3);
  EXPECT_EQ(c.forwards, 3 + 4);
  EXPECT_EQ(c.largest_batch, 8);
  EXPECT_EQ(c.sampled_tokens, 5);
  EXPECT_EQ(c.work.expert_rows, 3 * 24 * model.facts().experts_a_token * model.facts().sparse_layers);
  const std::int64_t k = model.facts().select_top_k;  // 1 + .. + 24 visible; k(k+1)/2 + (24 - k) k attended to
  EXPECT_EQ(c.work.pairs_visible, 300 * model.facts().layers * model.facts().attention_heads);
  EXPECT_EQ(c.work.pairs_skipped(), (300 - (k * (k + 1) / 2 + (24 - k) * k)) * model.facts().layers * model.facts().attention_heads);
  EXPECT_EQ(c.work.fault(), "");
}

TEST(Engine, NewWeightsAreUsedFromTheNextStepOn) {
  Plant plant;
  const auto second = [&] {
    plant.images = initial_weights(plant.runtime.model->manifest(), 99, 0.25);
    return plant.make(2);
  }();
  Engine engine(plant.runtime, plant.weights, {.page_size = 4});
  const Request request{.prompt = std::vector<std::int32_t>(13, 5), .sampling = {.seed = 3, .max_tokens = 12}};
  const auto before = bits_of(engine.generate({request})[0]);
  Generation across;
  engine.submit(
      request,
      [&](std::uint64_t, const GeneratedToken&) {
        if (engine.counters().sampled_tokens == 12 + 6) engine.set_weights(second);
      },
      [&](Generation&& g) { across = std::move(g); });
  engine.run_until_idle();
  ASSERT_EQ(across.tokens.size(), 12u);
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(across.tokens[i].weights_version, i < 6 ? 1u : 2u);
  EXPECT_EQ(engine.counters().mixed_version_tokens, 6);
  const std::int64_t hits = engine.counters().cache_hit_tokens;
  const auto after = bits_of(engine.generate({request})[0]);
  EXPECT_EQ(engine.counters().cache_hit_tokens, hits);  // no page of the first version
  EXPECT_NE(after, before);
  Engine fresh(plant.runtime, second, {.page_size = 16, .prefix_cache = false});
  EXPECT_EQ(after, bits_of(fresh.generate({request})[0]));
}

// Scores and embeddings have no token that could be marked, so they are of one version: of the new one, or with `finish` of the old one.
TEST(Engine, WhatIsScoredOrPooledIsOfOneVersion) {
  Plant plant;
  plant.images = initial_weights(plant.runtime.model->manifest(), 99, 0.25);
  const std::shared_ptr<const WeightSet> second = plant.make(2);
  std::vector<Request> requests(2);
  for (Request& r : requests) {
    for (std::int32_t i = 0; i < 40; ++i) r.prompt.push_back(i * 7 % 13);
    r.sampling.max_tokens = 0;
  }
  requests[0].prompt_logprobs = true;
  requests[1].pooling = Pooling::mean;
  const auto told = [&](const std::shared_ptr<const WeightSet>& first, const std::shared_ptr<const WeightSet>& then, InFlight in_flight) {
    Engine engine(plant.runtime, first, {.page_size = 4, .max_batch_rows = 8, .prefill_chunk = 4});
    std::vector<Generation> done(requests.size());
    for (std::size_t i = 0; i < requests.size(); ++i) engine.submit(requests[i], {}, [&done, i](Generation&& g) { done[i] = std::move(g); });
    for (int step = 0; step < 3; ++step) engine.step();
    engine.set_weights(then, in_flight);
    engine.run_until_idle();
    EXPECT_EQ(done[0].prompt_logprobs.size(), 39u);
    EXPECT_FALSE(done[1].pooled.empty());
    return std::pair(done[0].prompt_logprobs, done[1].pooled);
  };
  const auto of_first = told(plant.weights, plant.weights, InFlight::go_on), of_second = told(second, second, InFlight::go_on);
  const auto different = [](const auto& a, const auto& b) { return different_bits(a.first, b.first) + different_bits(a.second, b.second); };
  EXPECT_GT(different(of_first, of_second), 39u);  // the control
  EXPECT_EQ(different(told(plant.weights, second, InFlight::go_on), of_second), 0u);
  EXPECT_EQ(different(told(plant.weights, second, InFlight::reprefill), of_second), 0u);
  EXPECT_EQ(different(told(plant.weights, second, InFlight::finish), of_first), 0u);
}

// Requests under weights of their own, beside others: the bits of an engine that has those weights, though all sets have one
// version; and neither takes the other's pages.
TEST(Engine, RequestsMayBringWeightsOfTheirOwn) {
  for (const auto& [profile, kind] : {std::pair("cpu-f32", BackendKind::cpu), std::pair("cpu-bf16w", BackendKind::deferred)}) {
    Plant plant("sharing", profile, {.kind = kind, .threads = 2});
    std::vector<std::shared_ptr<const WeightSet>> own{nullptr};
    for (const std::uint64_t seed : {99, 98}) {
      plant.images = initial_weights(plant.runtime.model->manifest(), seed, 0.25);
      own.push_back(plant.make(plant.weights->version));
    }
    const std::vector<Request> requests = random_requests(18, 5, plant.runtime.model->facts().vocabulary);
    std::vector<std::vector<std::vector<std::uint32_t>>> alone;
    for (const auto& weights : own) {
      Engine engine(plant.runtime, weights ? weights : plant.weights, {.page_size = 4});
      alone.push_back(bits_of(engine.generate(requests)));
    }
    EXPECT_NE(alone[0], alone[1]);
    EXPECT_NE(alone[1], alone[2]);
    for (const std::int64_t pages : {0, 24}) {
      Engine engine(plant.runtime, plant.weights, {.page_size = 4, .cache_pages = pages, .max_batch_rows = 40});
      std::vector<Request> mixed;
      for (std::size_t i = 0; i < requests.size(); ++i)
        for (std::size_t w = 0; w < own.size(); ++w) {
          mixed.push_back(requests[i]);
          mixed.back().weights = own[w];
        }
      const auto got = bits_of(engine.generate(mixed));
      for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], alone[i % own.size()][i / own.size()]) << "request " << i;
      EXPECT_GT(engine.counters().own_weights_forwards, 0);
      EXPECT_LT(engine.counters().own_weights_forwards, engine.counters().forwards);
      if (pages == 0) EXPECT_GT(engine.counters().cache_hit_tokens, 0);
      else EXPECT_GT(engine.counters().preemptions, 0);
      Engine other(plant.runtime, own[1]);
      EXPECT_EQ(different_bits(prompt_scores(engine, requests[0].prompt, own[1]), prompt_scores(other, requests[0].prompt)), 0u);
    }
  }
}

TEST(Engine, RefusesWeightsOfAnotherModelOrProfile) {
  Plant plant, wide("wide"), f32("sharing", "cpu-f32");
  Engine engine(plant.runtime, plant.weights);
  EXPECT_THROW(engine.submit({.prompt = {1}, .weights = wide.weights}), Error);
  EXPECT_THROW(engine.submit({.prompt = {1}, .weights = f32.weights}), Error);
  EXPECT_THROW(engine.set_weights(f32.weights), Error);
  Engine ranks(plant.runtime, plant.weights, {.ranks = {2, 1, 1}});
  EXPECT_THROW(ranks.submit({.prompt = {1}, .weights = wide.weights}), Error);
  EXPECT_EQ(engine.generate({{.prompt = {1}, .weights = plant.weights}}).size(), 1u);
}

// An embedding that is NaN: whoever says that token fails, the others do not notice.
TEST(Engine, ANaNFailsItsRequestAlone) {
  Plant clean;
  Plant plant;
  const Manifest& manifest = plant.runtime.model->manifest();
  for (std::size_t i = 0; i < manifest.parameters().size(); ++i) {
    const Parameter& p = manifest.parameters()[i];
    if (p.layout != ParameterLayout::table || p.outputs != plant.runtime.model->facts().vocabulary) continue;
    for (std::int64_t k = 0; k < p.inputs; ++k) plant.images[i][static_cast<std::size_t>(p.offset(0, 11, k))] = std::numeric_limits<float>::quiet_NaN();
  }
  std::vector<Request> requests;
  for (std::int32_t i = 0; i < 12; ++i) {
    Request r{.prompt = {1, 2, 3, 4, 5, 6, i % 3 == 0 ? 11 : 7, 8, 9, 10, 12, 13}, .sampling = {.seed = static_cast<std::uint64_t>(i), .max_tokens = 6}};
    if (i % 3 == 2) r.prompt[0] = 20 + i;
    requests.push_back(r);
  }
  Engine good(clean.runtime, clean.weights);
  const std::vector<Generation> expected = good.generate(requests);
  for (std::int64_t page_size : {1, 4, 16})
    for (std::int64_t chunk : {3, 64}) {
      Engine engine(plant.runtime, plant.make(1), {.page_size = page_size, .cache_pages = 400 / page_size, .prefill_chunk = chunk});
      const std::vector<Generation> got = engine.generate(requests);
      for (std::size_t i = 0; i < got.size(); ++i) {
        if (i % 3 == 0) {
          EXPECT_EQ(got[i].finish, FinishReason::error);
          EXPECT_NE(got[i].error.find("NaN"), std::string::npos);
          EXPECT_TRUE(got[i].tokens.empty());
        } else if (std::none_of(expected[i].tokens.begin(), expected[i].tokens.end(), [](const GeneratedToken& t) { return t.id == 11; })) {
          EXPECT_EQ(bits_of(got[i]), bits_of(expected[i])) << "request " << i;
        }
      }
      EXPECT_GE(engine.counters().failed_requests, 4);
      EXPECT_THROW(prompt_scores(engine, requests[0].prompt), Error);
      EXPECT_EQ(different_bits(prompt_scores(engine, requests[1].prompt), prompt_scores(good, requests[1].prompt)), 0u);
      const Scheduler& s = engine.scheduler();
      EXPECT_EQ(s.pages().free_pages() + s.prefix_cache().idle(), s.pages().total());
    }
}

TEST(Engine, StopTokensLengthAndCallbacks) {
  Plant plant;
  Engine engine(plant.runtime, plant.weights);
  const Request request{.prompt = {4, 5, 6}, .sampling = {.seed = 1, .max_tokens = 10}};
  const Generation whole = engine.generate({request})[0];
  EXPECT_EQ(whole.finish, FinishReason::length);
  ASSERT_EQ(whole.tokens.size(), 10u);
  Request stopped = request;
  stopped.sampling.stop_tokens = {whole.tokens[4].id};
  std::size_t first = 0;
  while (whole.tokens[first].id != whole.tokens[4].id) ++first;
  std::vector<std::int32_t> streamed;
  Generation result;
  const std::uint64_t id = engine.submit(
      stopped, [&](std::uint64_t, const GeneratedToken& t) { streamed.push_back(t.id); }, [&](Generation&& g) { result = std::move(g); });
  engine.run_until_idle();
  EXPECT_EQ(result.id, id);
  EXPECT_EQ(result.finish, FinishReason::stop);
  ASSERT_EQ(result.tokens.size(), first + 1);
  ASSERT_EQ(streamed.size(), result.tokens.size());
  for (std::size_t i = 0; i < streamed.size(); ++i) EXPECT_EQ(streamed[i], result.tokens[i].id);
  Request empty = request;
  empty.sampling.max_tokens = 0;
  empty.prompt_logprobs = true;
  const Generation scored = engine.generate({empty})[0];
  EXPECT_TRUE(scored.tokens.empty());
  EXPECT_EQ(scored.prompt_logprobs.size(), 2u);
  EXPECT_FALSE(engine.step());
}

TEST(Engine, CallbacksMayCancelSubmitAndThrow) {
  Plant plant;
  Engine engine(plant.runtime, plant.weights, {.max_sequences = 2});
  const Request request{.prompt = {4, 5, 6}, .sampling = {.seed = 1, .max_tokens = 10}};
  std::vector<FinishReason> ends;
  const auto end = [&](Generation&& g) { ends.push_back(g.finish); };
  std::uint64_t waiting = 0;
  int tokens = 0;
  engine.submit(
      request,
      [&](std::uint64_t id, const GeneratedToken&) {
        if (++tokens == 3) {
          engine.cancel(waiting);
          engine.cancel(id);
          engine.cancel(id);
          engine.submit(request, {}, end);
          throw std::runtime_error("a callback failed");
        }
      },
      end);
  engine.submit(request, {}, end);
  waiting = engine.submit(request, {}, end);
  EXPECT_THROW(engine.run_until_idle(), std::runtime_error);
  EXPECT_EQ(tokens, 3);
  engine.run_until_idle();
  EXPECT_EQ(ends, (std::vector<FinishReason>{FinishReason::cancelled, FinishReason::cancelled, FinishReason::length, FinishReason::length}));
  EXPECT_TRUE(engine.idle());
  engine.submit(request, [&](std::uint64_t, const GeneratedToken&) { engine.step(); });
  EXPECT_THROW(engine.run_until_idle(), Error);
}

TEST(Engine, RefusesWhatItCannotDo) {
  Plant plant;
  Engine engine(plant.runtime, plant.weights, {.page_size = 4, .cache_pages = 8});
  const auto refused = [&](const std::string& field, auto&& change) {
    Request r{.prompt = {1, 2, 3}, .sampling = {.max_tokens = 4}};
    change(r);
    try {
      engine.submit(r);
      ADD_FAILURE() << field << " was accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
      EXPECT_EQ(e.message().rfind(field, 0), 0u) << e.message();
      EXPECT_NE(e.message().find("allowed"), std::string::npos) << e.message();
    }
  };
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  refused("prompt", [](Request& r) { r.prompt.clear(); });
  refused("prompt[1]", [](Request& r) { r.prompt[1] = -1; });
  refused("prompt[2]", [&](Request& r) { r.prompt[2] = static_cast<std::int32_t>(plant.runtime.model->facts().vocabulary); });
  refused("prompt", [](Request& r) { r.prompt.assign(33, 1); });
  refused("max_tokens", [](Request& r) { r.sampling.max_tokens = 30; });
  refused("max_tokens", [](Request& r) { r.sampling.max_tokens = -1; });
  refused("max_tokens", [](Request& r) { r.sampling.max_tokens = std::numeric_limits<std::int32_t>::max(); });
  for (float t : {-0.1f, 100.5f, nan, infinity}) refused("temperature", [t](Request& r) { r.sampling.temperature = t; });
  for (float p : {-0.1f, 1.5f, nan}) refused("top_p", [p](Request& r) { r.sampling.top_p = p; });
  refused("top_k", [](Request& r) { r.sampling.top_k = -1; });
  refused("sample_index", [](Request& r) { r.sampling.sample_index = -2; });
  refused("stop_tokens[0]", [](Request& r) { r.sampling.stop_tokens = {-7}; });
  EXPECT_TRUE(engine.idle());
  EXPECT_THROW(engine.generate({{.prompt = {1}}, {.prompt = {}}}), Error);
  EXPECT_TRUE(engine.idle());
  EXPECT_THROW(Engine(plant.runtime, plant.weights, {.page_size = 0}), Error);
  EXPECT_THROW(Engine(plant.runtime, plant.weights, {.cache_bytes = 10}), Error);
  EXPECT_THROW(Engine(plant.runtime, nullptr), Error);
  engine.generate({{.prompt = {1, 2}, .sampling = {.max_tokens = 30}}});  // exactly the cache
}

}  // namespace
}  // namespace lockstep
