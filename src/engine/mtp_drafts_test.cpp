// Guesses of a layer of multi-token prediction: no bit of an answer depends on them, and what is guessed depends on the text alone, not on how it came
// to stand in the cache.
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "engine/drafts_test_tools.h"

namespace lockstep {
namespace {

std::vector<Request> guessed_by_layer(std::vector<Request> requests, std::int64_t tokens, const char* sources = "mtp") {
  for (Request& r : requests) r.drafts = parse_drafts(sources, tokens);
  return requests;
}

void expect_same_bits(const std::vector<Generation>& got, const std::vector<Generation>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(all_bits_of(got[i]), all_bits_of(want[i])) << what << ", request " << i;
}

TEST(MtpDrafts, ChangeNoBitOfAnyRequest) {
  for (const BackendOptions& backend : {BackendOptions{.threads = 1}, BackendOptions{.kind = BackendKind::deferred, .threads = 2}}) {
    MtpPlant plant("cpu-bf16w", backend);
    std::vector<Request> requests = rich_requests(24, 5, plant.vocabulary());
    for (Request& r : requests) r.sampling.max_tokens *= 2;
    std::vector<Generation> want;
    {
      Engine engine(plant.runtime, plant.weights, {.page_size = 4, .cache_pages = 600});
      want = engine.generate(constrained(requests, plant.vocabulary()));
    }
    std::int64_t preemptions = 0;
    for (const EngineOptions& options : {EngineOptions{.page_size = 4, .cache_pages = 600, .max_batch_rows = 300},
                                         EngineOptions{.page_size = 4, .cache_pages = 26, .max_batch_rows = 32, .prefill_chunk = 5}})
      for (const char* sources : {"mtp", "mtp,ngram,siblings,grammar", "auto"}) {
        Engine engine(plant.runtime, plant.weights, options, plant.layer);
        const std::string what = fmt::format("{}, {} pages", sources, options.cache_pages);
        expect_same_bits(engine.generate(constrained(guessed_by_layer(requests, 5, sources), plant.vocabulary())), want, what);
        const EngineCounters& c = engine.counters();
        EXPECT_EQ(c.draft_rows, c.drafts.tokens) << what;
        if (std::string(sources) == "mtp") {
          EXPECT_GT(c.drafts.tokens_by(DraftKind::mtp), 100) << what;
          EXPECT_GT(c.drafts.accepted_by(DraftKind::mtp), 10) << what;
          EXPECT_EQ(c.drafts.tokens, c.drafts.tokens_by(DraftKind::mtp)) << what;
        }
        preemptions += c.preemptions;
        expect_same_bits(engine.generate(constrained(requests, plant.vocabulary())), want, what + ", again");  // what stands in the prefix cache
        EXPECT_GT(engine.counters().cache_hit_tokens, 0) << what;
      }
    EXPECT_GT(preemptions, 0);
  }
}

std::vector<std::int64_t> numbers_of(const std::vector<Generation>& all) {
  std::vector<std::int64_t> numbers;
  for (const Generation& g : all) {
    numbers.insert(numbers.end(), {g.drafts.drafts, g.drafts.tokens, g.drafts.accepted});
    numbers.insert(numbers.end(), g.drafts.accepted_at.begin(), g.drafts.accepted_at.end());
  }
  return numbers;
}

std::vector<Request> talkative_requests(std::int64_t count, std::int64_t vocabulary) {
  RandomSequence draws(3, RandomStream::fuzz);
  std::vector<Request> requests(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    constexpr float kTemperatures[] = {0, 0.7f, 1, 1.5f};
    // Whole chunks of three: a prompt's last row by itself would be guessed behind, and that of a longer chunk is not.
    requests[i].prompt = random_tokens(draws, 3 * (1 + static_cast<std::int64_t>(i * 5 % 8)), vocabulary);
    requests[i].sampling = {.temperature = kTemperatures[i % 4], .seed = i, .max_tokens = 60};
  }
  return guessed_by_layer(requests, 4);
}

// A request that begins in one chunk or many, alone or beside others, in pages of any size, anew or (its prompt) from the cache, is guessed the same.
TEST(MtpDrafts, WhatIsGuessedDependsOnTheTextAlone) {
  MtpPlant plant;
  const std::vector<Request> requests = talkative_requests(8, plant.vocabulary());
  const auto run = [&](const EngineOptions& options, bool together) {
    Engine engine(plant.runtime, plant.weights, options, plant.layer);
    std::vector<Generation> all;
    if (together) all = engine.generate(requests);
    else
      for (const Request& r : requests) all.push_back(engine.generate({r})[0]);
    return std::pair(numbers_of(all), engine.counters().drafts.accepted);
  };
  const auto [want, accepted] = run({.page_size = 16, .cache_pages = 400, .prefix_cache = false}, true);
  EXPECT_GT(accepted, 50);
  for (const std::int64_t page : {1, 4, 7, 16, 64})
    for (const bool together : {false, true}) {
      const EngineOptions options{.page_size = page, .cache_pages = 3000 / page, .prefill_chunk = page == 4 ? 3 : 128, .prefix_cache = false};
      EXPECT_EQ(run(options, together).first, want) << "pages of " << page << (together ? ", together" : ", alone");
    }
}

// Many tokens, at every temperature, on two instruction sets, with drafts of the greatest length: 12,800 of them, and a million with LOCKSTEP_SLOW_TESTS=1.
// Where the second set is the one without vectors, which takes many times as long, it has eight of the 64 requests, and the first set goes on instead.
// What was taken is counted by depth and by source.
TEST(MtpDrafts, ManyTokensHaveTheBitsOfDecodingThem) {
  const char* slow = std::getenv("LOCKSTEP_SLOW_TESTS");
  const std::int64_t wanted = slow && *slow == '1' ? 1'000'000 : 12'800;
  std::int64_t tokens = 0;
  for (std::uint64_t round = 0; tokens < wanted; ++round) {
    ASSERT_LT(round, 160u) << tokens;
    std::vector<std::vector<Generation>> by_isa;
    for (const InstructionSet isa : {InstructionSet::avx512, InstructionSet::avx2, InstructionSet::scalar}) {
      if (!machine_has(isa) || by_isa.size() == 2) continue;
      MtpPlant plant("cpu-bf16w", {.isa = isa, .threads = 2});
      RandomSequence draws(21 + round, RandomStream::fuzz);
      std::vector<Request> requests(isa == InstructionSet::scalar ? 8u : 64u);
      for (std::size_t i = 0; i < requests.size(); ++i) {
        constexpr float kTemperatures[] = {0, 0.7f, 1, 1.5f};
        requests[i].prompt = random_tokens(draws, 4, plant.vocabulary());
        requests[i].sampling = {.temperature = kTemperatures[i % 4], .seed = 1000 * round + i, .max_tokens = 100};
      }
      const EngineOptions options{.page_size = 16, .cache_pages = 800};
      Engine plain(plant.runtime, plant.weights, options), engine(plant.runtime, plant.weights, options, plant.layer);
      by_isa.push_back(plain.generate(requests));
      expect_same_bits(engine.generate(guessed_by_layer(requests, 8)), by_isa.back(), fmt::format("{}, round {}", instruction_set_name(isa), round));
      tokens += engine.counters().sampled_tokens;
      const DraftCounters& c = engine.counters().drafts;
      EXPECT_GT(c.accepted, 0);
      if (isa != InstructionSet::scalar) {
        EXPECT_GT(c.accepted_at[1], 0);
      }
      for (std::size_t k = 1; k < c.accepted_at.size(); ++k) EXPECT_LE(c.accepted_at[k], c.accepted_at[k - 1]) << k;
      EXPECT_EQ(std::accumulate(c.accepted_at.begin(), c.accepted_at.end(), std::int64_t{0}), c.accepted);
      EXPECT_EQ(c.accepted_by(DraftKind::mtp), c.accepted);
    }
    ASSERT_EQ(by_isa.size(), 2u);
    by_isa[0].resize(by_isa[1].size());
    expect_same_bits(by_isa[1], by_isa[0], "instruction sets");
  }
}

// Behind a prefix from the cache a row's state comes from the page; what was guessed once is guessed again from the second token on.
TEST(MtpDrafts, BehindACachedPrefixTheStateComesFromThePage) {
  MtpPlant plant;
  const Request request = talkative_requests(4, plant.vocabulary())[3];
  Request longer = request;
  RandomSequence draws(8, RandomStream::fuzz);
  longer.prompt = random_tokens(draws, 41, plant.vocabulary());
  const auto drafts_of = [&](bool cached) {
    Engine engine(plant.runtime, plant.weights, {.page_size = 8, .cache_pages = 400}, plant.layer);
    Request first = longer;
    if (cached) first.sampling.max_tokens = 1;
    else first.prompt[0] = (first.prompt[0] + 1) % static_cast<std::int32_t>(plant.vocabulary());  // another text
    engine.generate({first});
    const Generation g = engine.generate({longer})[0];
    EXPECT_EQ(g.cached_tokens, cached ? 40 : 0);
    return numbers_of({g});
  };
  // The prompt ends one token behind its last cached page, so that its row is computed before anything is guessed.
  EXPECT_EQ(drafts_of(true), drafts_of(false));
}

// What is taken back and comes again is guessed again, with the bits it had.
TEST(MtpDrafts, GoOnWhereATextWasCut) {
  MtpPlant plant;
  for (const std::int64_t page : {1, 5, 16}) {
    Request request = talkative_requests(4, plant.vocabulary())[2];
    Engine plain(plant.runtime, plant.weights, {.page_size = page, .cache_pages = 400});
    Request without = request;
    without.drafts = {};
    const Generation want = plain.generate({without})[0];
    Engine engine(plant.runtime, plant.weights, {.page_size = page, .cache_pages = 400}, plant.layer);
    Generation got;
    const std::uint64_t id = engine.submit(request, {}, [&](Generation&& g) { got = std::move(g); });
    for (const std::size_t cut : {7u, 21u, 20u, 3u}) {
      while (engine.running() == 0 || engine.scheduler().running()[0]->generation.tokens.size() <= cut) ASSERT_TRUE(engine.step());
      engine.truncate(id, cut);
    }
    engine.run_until_idle();
    EXPECT_EQ(bits_of(got), bits_of(want)) << page;
    EXPECT_GT(engine.counters().drafts.accepted, 0) << page;
  }
}

// Control: noise that depends on the step and not on the position. Then the layer's guesses change what is said, and the comparisons above see it.
TEST(MtpDrafts, NoiseByStepWouldBeSeen) {
  MtpPlant plant;
  const Request ahead = talkative_requests(4, plant.vocabulary())[2];
  Request without = ahead;
  without.drafts = {};
  const auto run = [&](const Request& asked, bool by_step) {
    Engine engine(plant.runtime, plant.weights, {}, plant.layer);
    return said_with_noise(engine, asked, by_step);
  };
  for (const bool by_step : {false, true}) {
    const Generation got = run(ahead, by_step), want = run(without, by_step);
    EXPECT_GT(got.drafts.accepted, 0) << by_step;
    EXPECT_EQ(all_bits_of(got) == all_bits_of(want), !by_step);
  }
}

// Numbers that are none, in the layer alone, end nobody and are guessed by nobody.
TEST(MtpDrafts, ANanInTheLayerHarmsNobody) {
  MtpPlant plant;
  const std::vector<Request> requests = talkative_requests(4, plant.vocabulary());
  std::vector<Request> without = requests;
  for (Request& r : without) r.drafts = {};
  Engine plain(plant.runtime, plant.weights);
  const std::vector<Generation> want = plain.generate(without);
  for (std::vector<float>& image : plant.layer_images)
    for (float& x : image) x = std::nanf("");
  Engine engine(plant.runtime, plant.weights, {}, plant.make_layer());
  expect_same_bits(engine.generate(requests), want, "a layer of NaNs");
  EXPECT_EQ(engine.counters().drafts.tokens, 0);
  EXPECT_EQ(engine.counters().failed_requests, 0);
}

// Under rejection sampling answers depend on the distributions that guesses are drawn from, and so tell of each of them.
std::vector<Request> rejecting(std::vector<Request> requests) {
  for (Request& r : requests) r.drafts->acceptance = DraftOptions::Acceptance::rejection;
  return requests;
}

// Each rank runs the whole layer, and all guess what one rank guesses; so under rejection sampling too.
TEST(MtpDrafts, OverRanksTheyAreThoseOfOne) {
  MtpPlant plant;
  const std::vector<Request> coupled = talkative_requests(6, plant.vocabulary());
  std::vector<Request> without = coupled;
  for (Request& r : without) r.drafts = {};
  Engine plain(plant.runtime, plant.weights), one(plant.runtime, plant.weights, {}, plant.layer);
  const std::vector<Generation> bare = plain.generate(without), want = one.generate(coupled), rejected = one.generate(rejecting(coupled));
  EXPECT_GT(one.counters().drafts.accepted, 50);
  EXPECT_NE(bits_of(rejected[3]), bits_of(want[3]));
  for (const RankLayout& ranks : std::vector<RankLayout>{{2, 1, 1}, {1, 1, 2}, {2, 1, 2}, {1, 1, 1, 2}}) {
    Engine engine(plant.runtime, plant.weights, {.ranks = ranks}, plant.layer);
    const std::vector<Generation> got = engine.generate(coupled);
    expect_same_bits(got, bare, ranks.text());
    EXPECT_EQ(numbers_of(got), numbers_of(want)) << ranks.text();
    expect_same_bits(engine.generate(rejecting(coupled)), rejected, ranks.text() + ", rejection");
  }
}

// Depths that share nothing: other guesses, of which all the same holds.
TEST(MtpDrafts, OfDepthsThatShareNothing) {
  MtpPlant shared, own("cpu-bf16w", {.threads = 2}, 128, false);
  const std::vector<Request> requests = talkative_requests(8, own.vocabulary());
  std::vector<Request> without = requests;
  for (Request& r : without) r.drafts = {};
  Engine plain(own.runtime, own.weights), of_shared(shared.runtime, shared.weights, {}, shared.layer);
  const std::vector<Generation> want = plain.generate(without);
  std::vector<std::int64_t> numbers;
  std::vector<Generation> rejected;
  for (const std::int64_t page : {64, 16, 7, 1})
    for (const bool together : {true, false}) {
      const EngineOptions options{.page_size = page, .cache_pages = 3000 / page, .prefill_chunk = page == 7 ? 3 : 128};
      Engine engine(own.runtime, own.weights, options, own.layer);
      std::vector<Generation> got, by_rejection;
      const auto add = [&](const std::vector<Request>& asked) {
        for (Generation& g : engine.generate(asked)) got.push_back(std::move(g));
        for (Generation& g : engine.generate(rejecting(asked))) by_rejection.push_back(std::move(g));
      };
      if (together) add(requests);
      else
        for (const Request& r : requests) add({r});
      const std::string what = fmt::format("pages of {}{}", page, together ? ", together" : "");
      expect_same_bits(got, want, what);
      if (rejected.empty()) rejected = by_rejection;
      expect_same_bits(by_rejection, rejected, what + ", rejection");
      if (numbers.empty()) numbers = numbers_of(got);
      EXPECT_EQ(numbers_of(got), numbers) << what;
      EXPECT_GT(engine.counters().drafts.accepted, 50) << what;
    }
  EXPECT_NE(numbers_of(of_shared.generate(requests)), numbers);
  Engine ranks(own.runtime, own.weights, {.ranks = {2, 1, 2}}, own.layer);
  EXPECT_EQ(numbers_of(ranks.generate(requests)), numbers);
  expect_same_bits(ranks.generate(rejecting(requests)), rejected, "ranks, rejection");
}

// With the weights of a new model, all ones, the layer's own norm of what it is given undoes the difference between a normed state and an unnormed one.
void with_uneven_norm(MtpPlant& plant) {
  const auto& parameters = plant.runtime.model->mtp()->manifest().parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].name.ends_with("shared_head.norm.weight"))
      for (std::size_t n = 0; n < plant.layer_images[i].size(); ++n) plant.layer_images[i][n] = n % 2 == 0 ? 0.6f : 1.4f;
  plant.layer = plant.make_layer();
}

// Depths that are given the unnormed output of the one before, whether they share keys or not: other guesses from the second token on, and the same answers.
TEST(MtpDrafts, OfUnnormedStates) {
  for (const bool shares_keys : {true, false}) {
    MtpPlant normed("cpu-bf16w", {.threads = 2}, 128, shares_keys), unnormed("cpu-bf16w", {.threads = 2}, 128, shares_keys, false);
    EXPECT_FALSE(unnormed.runtime.model->config().at("normed_state_for_mtp_iteration").get<bool>());
    for (MtpPlant* plant : {&normed, &unnormed}) with_uneven_norm(*plant);
    const std::vector<Request> requests = talkative_requests(8, unnormed.vocabulary());
    std::vector<Request> without = requests, one_ahead = requests;
    for (Request& r : without) r.drafts = {};
    for (Request& r : one_ahead) r.drafts->tokens = 1;
    Engine plain(unnormed.runtime, unnormed.weights), of_normed(normed.runtime, normed.weights, {}, normed.layer);
    const std::vector<Generation> want = plain.generate(without), rejected_normed = of_normed.generate(rejecting(requests));
    std::vector<std::int64_t> numbers;
    std::vector<Generation> rejected;
    for (const EngineOptions& options : {EngineOptions{.page_size = 16}, EngineOptions{.page_size = 7, .cache_pages = 400, .prefill_chunk = 3},
                                         EngineOptions{.page_size = 1, .cache_pages = 3000}, EngineOptions{.ranks = {2, 1, 2}}}) {
      Engine engine(unnormed.runtime, unnormed.weights, options, unnormed.layer);
      const std::string what = fmt::format("pages of {}, ranks {}, keys {}", options.page_size, options.ranks.text(), shares_keys ? "shared" : "own");
      const std::vector<Generation> got = engine.generate(requests), by_rejection = engine.generate(rejecting(requests));
      expect_same_bits(got, want, what);
      if (numbers.empty()) numbers = numbers_of(got), rejected = by_rejection;
      EXPECT_EQ(numbers_of(got), numbers) << what;
      expect_same_bits(by_rejection, rejected, what + ", rejection");
      EXPECT_GT(engine.counters().drafts.accepted, 50) << what;
    }
    EXPECT_NE(numbers_of(of_normed.generate(requests)), numbers);
    EXPECT_NE(bits_of(rejected[3]), bits_of(rejected_normed[3]));
    // The first token is guessed alike.
    Engine first(unnormed.runtime, unnormed.weights, {}, unnormed.layer), first_of_normed(normed.runtime, normed.weights, {}, normed.layer);
    EXPECT_EQ(numbers_of(first.generate(one_ahead)), numbers_of(first_of_normed.generate(one_ahead)));
  }
}

// Behind new weights of the layer is guessed as in an engine that was made with them: nothing that the old layer left in the cache is seen.
TEST(MtpDrafts, NewWeightsOfTheLayer) {
  MtpPlant plant;
  const std::vector<Request> requests = talkative_requests(8, plant.vocabulary());
  plant.layer_images = initial_weights(plant.runtime.model->mtp()->manifest(), 12, 0.25);
  const std::shared_ptr<const WeightSet> newer = plant.make_layer();
  const EngineOptions options{.page_size = 4, .cache_pages = 600};
  for (const RankLayout& ranks : std::vector<RankLayout>{{1, 1, 1}, {2, 1, 1}}) {
    EngineOptions own = options;
    own.ranks = ranks;
    Engine made_with(plant.runtime, plant.weights, own, newer), swapped(plant.runtime, plant.weights, own, plant.layer);
    const std::vector<Generation> want = made_with.generate(requests), before = swapped.generate(requests);
    const std::vector<Generation> rejected_before = swapped.generate(rejecting(requests));
    swapped.set_weights(plant.weights, InFlight::go_on, newer);
    const std::vector<Generation> got = swapped.generate(requests), rejected = swapped.generate(rejecting(requests));
    expect_same_bits(got, before, "a new layer");
    expect_same_bits(rejected, made_with.generate(rejecting(requests)), "a new layer, rejection");
    EXPECT_NE(bits_of(rejected[3]), bits_of(rejected_before[3]));
    EXPECT_NE(numbers_of(before), numbers_of(want));
    EXPECT_EQ(numbers_of(got), numbers_of(want));
    // The same again changes nothing: prompts are found in the cache.
    const std::int64_t hits = swapped.counters().cache_hit_tokens;
    swapped.set_weights(plant.weights, InFlight::go_on, newer);
    swapped.generate(requests);
    EXPECT_GT(swapped.counters().cache_hit_tokens, hits);
  }
}

// In the middle of answers too, which go on with their bits.
TEST(MtpDrafts, NewWeightsOfTheLayerWhileRequestsRun) {
  MtpPlant plant;
  const std::vector<Request> requests = talkative_requests(6, plant.vocabulary());
  std::vector<Request> without = requests;
  for (Request& r : without) r.drafts = {};
  Engine plain(plant.runtime, plant.weights);
  const std::vector<Generation> want = plain.generate(without);
  Engine engine(plant.runtime, plant.weights, {.page_size = 4, .cache_pages = 600}, plant.layer);
  std::vector<Generation> got(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) engine.submit(requests[i], {}, [&got, i](Generation&& g) { got[i] = std::move(g); });
  for (int step = 0; engine.step(); ++step)
    if (step % 5 == 3) engine.set_weights(plant.weights, InFlight::go_on, plant.make_layer());
  expect_same_bits(got, want, "new layers on the way");
  EXPECT_EQ(engine.counters().mixed_version_tokens, 0);
  EXPECT_GT(engine.counters().drafts.accepted, 20);
}

TEST(MtpDrafts, WhatIsNotThereIsRefused) {
  MtpPlant plant;
  const auto refused = [](const char* part, const auto& work) {
    try {
      work();
      ADD_FAILURE() << "accepted, not refused with: " << part;
    } catch (const Error& e) {
      EXPECT_NE(e.message().find(part), std::string::npos) << e.message();
    }
  };
  EngineOptions by_layer;
  by_layer.drafts = parse_drafts("mtp", 3);
  refused("the source of drafts is 'mtp'", [&] { Engine(plant.runtime, plant.weights, by_layer); });
  refused("allowed are the", [&] { Engine(plant.runtime, plant.weights, by_layer, plant.weights); });
  Plant other;
  refused("allowed are the 0", [&] { Engine(other.runtime, other.weights, by_layer, plant.layer); });
  Engine engine(plant.runtime, plant.weights);
  refused("the engine was made without one", [&] { engine.set_weights(plant.weights, InFlight::go_on, plant.layer); });
  refused("no layer of multi-token prediction", [&] { engine.submit(guessed_by_layer({{.prompt = {1, 2}, .sampling = {.max_tokens = 4}}}, 3)[0]); });
  EXPECT_TRUE(engine.idle());
}

}  // namespace
}  // namespace lockstep
