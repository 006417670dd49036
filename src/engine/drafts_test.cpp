// What a request says does not depend on whether, how and how well it is guessed ahead: the same bits, whatever bears on sampling and on the
// batch. Beside it controls that must show a difference, and what is counted.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "engine/drafts_test_tools.h"
#include "model/adapter_test_tools.h"

namespace lockstep {
namespace {

std::vector<Request> with_guesses(const std::vector<Request>& requests, Guesses guesses, const std::vector<Generation>& said, std::int64_t vocabulary,
                                  std::int64_t tokens) {
  std::vector<Request> all;
  for (std::size_t i = 0; i < requests.size(); ++i) all.push_back(guessed(requests[i], guesses, said[i], vocabulary, tokens, i));
  return all;
}

void expect_same(const std::vector<Generation>& got, const std::vector<Generation>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(all_bits_of(got[i]), all_bits_of(want[i])) << what << ", request " << i;
}

std::vector<Request> requests_of_all_kinds(int count, std::uint64_t seed, std::int64_t vocabulary) {
  std::vector<Request> requests = rich_requests(count, seed, vocabulary);
  for (Request& r : requests) {
    r.sampling.max_tokens *= 2;
    const SamplingParameters& s = r.sampling;
    r.kept_tokens = s.repetition_penalty == 1 && s.presence_penalty == 0 && s.frequency_penalty == 0 && s.logit_bias.empty();
  }
  // Answers to one prompt of two words alone: they repeat themselves and each other.
  for (std::size_t i = 0; i < 4; ++i)
    requests[i] = {.prompt = {1, 2, 3, 1, 2, 3, 1, 2}, .sampling = {.logit_bias = {{5, 30}, {6, 30}}, .seed = i, .max_tokens = 24}};
  for (std::size_t i = 5; i + requests.size() / 2 < requests.size(); i += 2) requests[i + requests.size() / 2] = requests[i];  // siblings
  return requests;
}

TEST(Drafts, ChangeNoBitOfAnyRequest) {
  for (const BackendOptions& backend : {BackendOptions{.threads = 1}, BackendOptions{.kind = BackendKind::deferred, .threads = 2}}) {
    Plant plant("sharing", "cpu-bf16w", backend);
    const std::int64_t vocabulary = plant.runtime.model->facts().vocabulary;
    const std::vector<Request> requests = requests_of_all_kinds(24, 5, vocabulary);
    std::vector<Generation> want;
    {
      Engine engine(plant.runtime, plant.weights, {.page_size = 4, .cache_pages = 600});
      want = engine.generate(constrained(requests, vocabulary));
      EXPECT_EQ(engine.counters().drafts.drafts, 0);
    }
    const EngineOptions wide{.page_size = 4, .cache_pages = 600, .max_batch_rows = 300},
        tight{.page_size = 4, .cache_pages = 26, .max_batch_rows = 32, .prefill_chunk = 5};
    DraftCounters all;
    std::int64_t preemptions = 0;
    for (const Guesses guesses : kAllGuesses)
      for (const EngineOptions& options : {wide, tight}) {
        Engine engine(plant.runtime, plant.weights, options);
        const std::int64_t tokens = options.cache_pages == 26 ? 3 : 8;
        const std::string what = fmt::format("guesses {}, {} pages", static_cast<int>(guesses), options.cache_pages);
        expect_same(engine.generate(constrained(with_guesses(requests, guesses, want, vocabulary, tokens), vocabulary)), want, what);
        const EngineCounters& c = engine.counters();
        EXPECT_GT(c.drafts.drafts, 0) << what;
        EXPECT_EQ(c.draft_rows, c.drafts.tokens) << what;
        if (guesses == Guesses::perfect) {
          EXPECT_EQ(c.drafts.accepted, c.drafts.tokens) << what;
        }
        if (guesses == Guesses::hostile) {
          EXPECT_EQ(c.drafts.accepted, 0) << what;
        }
        for (std::size_t i = 0; i < kDraftKinds; ++i) all.accepted_of[i] += c.drafts.accepted_of[i];
        all.accepted += c.drafts.accepted;
        preemptions += c.preemptions;
        const Scheduler& s = engine.scheduler();
        EXPECT_EQ(s.pages().free_pages() + s.prefix_cache().idle(), s.pages().total()) << what;
        // What stands in the prefix cache is what it says: the same requests find it.
        expect_same(engine.generate(constrained(requests, vocabulary)), want, what + ", again");
        EXPECT_GT(engine.counters().cache_hit_tokens, 0) << what;
      }
    EXPECT_GT(preemptions, 0);
    for (const DraftKind kind : {DraftKind::scripted, DraftKind::grammar, DraftKind::prediction, DraftKind::siblings, DraftKind::ngram})
      EXPECT_GT(all.accepted_by(kind), 0) << draft_name(kind);
    EXPECT_GT(all.accepted, 500);
  }
}

TEST(Drafts, ChangeNoBitOnAnyRanksOrProfile) {
  for (const char* profile : {"cpu-f32", "cpu-int8w"}) {
    Plant plant("sharing", profile, {.threads = 2});
    const std::int64_t vocabulary = plant.runtime.model->facts().vocabulary;
    const std::vector<Request> requests = requests_of_all_kinds(12, 6, vocabulary);
    Engine plain(plant.runtime, plant.weights, {.page_size = 4, .cache_pages = 600});
    const std::vector<Generation> want = plain.generate(constrained(requests, vocabulary));
    for (const RankLayout& ranks : std::vector<RankLayout>{{1, 1, 1}, {2, 1, 1}, {1, 1, 2}}) {
      Engine engine(plant.runtime, plant.weights, {.page_size = 4, .cache_pages = 600, .ranks = ranks});
      expect_same(engine.generate(constrained(with_guesses(requests, Guesses::random, want, vocabulary, 5), vocabulary)), want, ranks.text());
      EXPECT_GT(engine.counters().drafts.accepted, 30);
    }
  }
}

// What so many requests at every temperature say, and with three kinds of guesses the same; `tokens` counts those that were guessed ahead.
std::vector<Generation> said_with_guesses(InstructionSet isa, std::uint64_t round, std::size_t count, std::int64_t& tokens) {
  Plant plant("sharing", "cpu-bf16w", {.isa = isa, .threads = 2}, 160);
  const std::int64_t vocabulary = plant.runtime.model->facts().vocabulary;
  RandomSequence draws(3 + round, RandomStream::fuzz);
  std::vector<Request> requests(count);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    constexpr float kTemperatures[] = {0, 0.7f, 1, 1.5f};
    requests[i].prompt = random_tokens(draws, 4, vocabulary);
    requests[i].sampling = {.temperature = kTemperatures[i % 4], .seed = 1000 * round + i, .max_tokens = 150};
  }
  const EngineOptions options{.page_size = 16, .cache_pages = 2000};
  Engine plain(plant.runtime, plant.weights, options);
  const std::vector<Generation> want = plain.generate(requests);
  for (const Guesses guesses : {Guesses::random, Guesses::all, Guesses::perfect}) {
    Engine engine(plant.runtime, plant.weights, options);
    expect_same(engine.generate(with_guesses(requests, guesses, want, vocabulary, 7)), want, fmt::format("{}, round {}", static_cast<int>(guesses), round));
    tokens += engine.counters().sampled_tokens;
    EXPECT_LT(engine.counters().forwards, 150);
  }
  return want;
}

// Many tokens, on two instruction sets: 100,000 of them, and a million with LOCKSTEP_SLOW_TESTS=1. Where the second set is the one without vectors, in which
// nobody is served and which takes many times as long, it has eight of the 128 requests, and the first set goes on instead.
TEST(Drafts, AHundredThousandTokensHaveTheBitsOfDecodingThem) {
  const char* slow = std::getenv("LOCKSTEP_SLOW_TESTS");
  const std::int64_t wanted = slow && *slow == '1' ? 1'000'000 : 100'000;
  std::int64_t tokens = 0;
  for (std::uint64_t round = 0; tokens < wanted; ++round) {
    ASSERT_LT(round, 20u) << tokens;
    std::vector<std::vector<Generation>> by_isa;
    for (const InstructionSet isa : {InstructionSet::avx512, InstructionSet::avx2, InstructionSet::scalar})
      if (machine_has(isa) && by_isa.size() < 2) by_isa.push_back(said_with_guesses(isa, round, isa == InstructionSet::scalar ? 8u : 128u, tokens));
    ASSERT_EQ(by_isa.size(), 2u);
    by_isa[0].resize(by_isa[1].size());
    expect_same(by_isa[1], by_isa[0], "instruction sets");
  }
}

// What a callback ends, ends there: nothing behind it is told, said or counted, wherever a draft stood and however the request would have ended.
TEST(Drafts, NothingIsToldBehindACancel) {
  Plant plant("sharing", "cpu-bf16w", {.threads = 1});
  const std::int64_t vocabulary = plant.runtime.model->facts().vocabulary;
  const Request request{.prompt = {4, 5, 6}, .sampling = {.seed = 1, .max_tokens = 10}};
  Engine plain(plant.runtime, plant.weights);
  const Generation said = plain.generate({request})[0];
  ASSERT_EQ(said.tokens.size(), 10u);
  for (const bool by_stop : {false, true})
    for (std::size_t most = 1; most <= 10; ++most) {
      Request ahead = guessed(request, Guesses::perfect, said, vocabulary, 4);
      if (by_stop) ahead.sampling.stop_tokens = {said.tokens[6].id};
      Engine engine(plant.runtime, plant.weights);
      std::size_t told = 0;
      Generation got;
      engine.submit(
          ahead,
          [&](std::uint64_t id, const GeneratedToken& t) {
            ASSERT_EQ(t.id, said.tokens[told].id);
            if (++told == most) engine.cancel(id);
          },
          [&](Generation&& g) { got = std::move(g); });
      engine.run_until_idle();
      std::size_t end = 10;
      if (by_stop)
        for (end = 1; said.tokens[end - 1].id != said.tokens[6].id; ++end) {
        }
      EXPECT_EQ(got.tokens.size(), std::min(most, end));
      EXPECT_EQ(told, got.tokens.size());
      EXPECT_EQ(engine.counters().sampled_tokens, static_cast<std::int64_t>(told));
      const FinishReason want = most < end   ? FinishReason::cancelled
                                : by_stop    ? FinishReason::stop
                                : most == 10 ? FinishReason::length
                                             : FinishReason::cancelled;
      EXPECT_EQ(got.finish, want) << most;
      EXPECT_TRUE(engine.idle());
      EXPECT_EQ(engine.scheduler().pages().free_pages() + engine.scheduler().prefix_cache().idle(), engine.scheduler().pages().total());
    }
}

// Guesses end before a stop token and before the last token that may be said.
TEST(Drafts, StopTokensAndLengthsEndAsWithoutThem) {
  Plant plant("sharing", "cpu-bf16w", {.threads = 1});
  const std::int64_t vocabulary = plant.runtime.model->facts().vocabulary;
  std::vector<Request> requests;
  for (std::int32_t i = 0; i < 40; ++i) {
    Request r{.prompt = {4, 5, i}, .sampling = {.seed = static_cast<std::uint64_t>(i), .max_tokens = 1 + i % 12}};
    for (std::int32_t t = i % 3; t < vocabulary; t += 9) r.sampling.stop_tokens.push_back(t);
    requests.push_back(r);
  }
  Engine plain(plant.runtime, plant.weights);
  const std::vector<Generation> want = plain.generate(requests);
  std::int64_t stopped = 0;
  for (const Generation& g : want) stopped += g.finish == FinishReason::stop;
  EXPECT_GT(stopped, 5);
  EXPECT_LT(stopped, 40);
  for (const Guesses guesses : {Guesses::perfect, Guesses::random}) {
    Engine engine(plant.runtime, plant.weights);
    expect_same(engine.generate(with_guesses(requests, guesses, want, vocabulary, 8)), want, "stops");
    EXPECT_EQ(engine.counters().sampled_tokens, plain.counters().sampled_tokens);
  }
}

void plant_nan(Plant& plant, std::int64_t token) {
  const Manifest& manifest = plant.runtime.model->manifest();
  for (std::size_t i = 0; i < manifest.parameters().size(); ++i) {
    const Parameter& p = manifest.parameters()[i];
    if (p.layout != ParameterLayout::table || p.outputs != plant.runtime.model->facts().vocabulary) continue;
    for (std::int64_t k = 0; k < p.inputs; ++k) plant.images[i][static_cast<std::size_t>(p.offset(0, token, k))] = std::numeric_limits<float>::quiet_NaN();
  }
}

// A token whose embedding is NaN, guessed wrongly all the time, harms nobody; where it is said, the request fails at the same place with the same text.
TEST(Drafts, ANaNInAWrongGuessHarmsNobody) {
  constexpr std::int32_t kBad = 11;
  Plant plant("sharing", "cpu-bf16w", {.threads = 1});
  plant_nan(plant, kBad);
  const auto weights = plant.make(1);
  const std::int64_t vocabulary = plant.runtime.model->facts().vocabulary;
  std::vector<Request> requests = requests_of_all_kinds(24, 8, vocabulary);
  for (Request& r : requests) std::replace(r.prompt.begin(), r.prompt.end(), kBad, kBad + 1);
  for (std::size_t i = 0; i < requests.size(); i += 3) requests[i].sampling = {.logit_bias = {{kBad, i % 2 ? 8.0f : 3.0f}}, .seed = i, .max_tokens = 30};
  for (Request& r : requests) r.kept_tokens = false;
  Engine plain(plant.runtime, weights);
  const std::vector<Generation> want = plain.generate(requests);
  std::int64_t failed = 0;
  for (const Generation& g : want) failed += g.finish == FinishReason::error;
  EXPECT_GT(failed, 1);
  EXPECT_LT(failed, 20);
  for (const std::int64_t page_size : {1, 4, 16}) {
    std::vector<Request> bad = requests;
    for (Request& r : bad) {
      r.drafts = DraftOptions{.length = DraftOptions::Length::fixed, .tokens = 4};
      r.draft_script = [=](std::span<const std::int32_t>, std::int64_t most, std::vector<std::int32_t>& out) {
        out.assign(static_cast<std::size_t>(most), kBad);
      };
    }
    Engine engine(plant.runtime, weights, {.page_size = page_size, .cache_pages = 2000 / page_size});
    expect_same(engine.generate(bad), want, fmt::format("NaN, pages of {}", page_size));
    EXPECT_GT(engine.counters().drafts.tokens, 200);
    EXPECT_EQ(engine.counters().failed_requests, failed);
    expect_same(engine.generate(with_guesses(requests, Guesses::perfect, want, vocabulary, 6)), want, "and guessed rightly");
  }
}

// A row of a right guess that is a NaN, behind a token at which the caller ends the request: without guesses that row would not have run.
TEST(Drafts, ANaNBehindACancelHarmsNobody) {
  constexpr std::int32_t kBad = 11;
  Plant plant("sharing", "cpu-bf16w", {.threads = 1});
  plant_nan(plant, kBad);
  const auto weights = plant.make(1);
  const Request request{.prompt = {4, 5, 6}, .sampling = {.seed = 1, .max_tokens = 10}, .given = {7, 8, kBad, 9}};
  const auto answer = [&](bool guesses, bool cancels, std::int64_t& failed) {
    Request asked = request;
    if (guesses) {
      asked.drafts = DraftOptions{.length = DraftOptions::Length::fixed, .tokens = 4};
      asked.draft_script = [given = request.given](std::span<const std::int32_t> now, std::int64_t, std::vector<std::int32_t>& out) {
        if (now.size() == 3) out = given;
      };
    }
    Engine engine(plant.runtime, weights);
    Generation got;
    engine.submit(
        asked,
        [&](std::uint64_t id, const GeneratedToken& t) {
          if (cancels && t.id == kBad) engine.cancel(id);
        },
        [&](Generation&& g) { got = std::move(g); });
    engine.run_until_idle();
    EXPECT_EQ(engine.counters().drafts.accepted, guesses ? 3 : 0);
    failed = engine.counters().failed_requests;
    return got;
  };
  for (const bool cancels : {true, false}) {  // the control: who does not end it is told
    std::int64_t failed = -1, failed_guessing = -1;
    const Generation want = answer(false, cancels, failed), got = answer(true, cancels, failed_guessing);
    EXPECT_EQ(got.finish, cancels ? FinishReason::cancelled : FinishReason::error);
    EXPECT_EQ(all_bits_of(got), all_bits_of(want));
    EXPECT_EQ(got.tokens.size(), 3u);
    EXPECT_EQ(failed, cancels ? 0 : 1);
    EXPECT_EQ(failed_guessing, failed);
  }
}

// New weights between steps: the tokens before have the old ones' bits; those after the new ones', over the present entries or, put back, over new ones, or
// still the old ones', where requests that run finish with them.
TEST(Drafts, NewWeightsInTheMiddleHaveTheBitsOfDecodingThere) {
  Plant plant("sharing", "cpu-bf16w", {.threads = 1}), other("sharing", "cpu-bf16w", {.threads = 1}, 128, 9);
  const auto next = make_weight_set(plant.runtime.backend, plant.runtime.model->manifest(), other.images, plant.runtime.profile, 2);
  const std::int64_t vocabulary = plant.runtime.model->facts().vocabulary;
  const Request request{.prompt = {4, 5, 6, 7}, .sampling = {.seed = 3, .max_tokens = 30}};
  // Changes the weights once `at` tokens or more are said; returns how many there were.
  const auto run = [&](const Request& asked, InFlight in_flight, std::size_t at, Generation& got) {
    Engine engine(plant.runtime, plant.weights, {.page_size = 4});
    engine.submit(asked, {}, [&](Generation&& g) { got = std::move(g); });
    std::size_t changed = 0;
    while (engine.step()) {
      if (changed > 0 || engine.scheduler().running().empty()) continue;
      const std::size_t said = engine.scheduler().running()[0]->generation.tokens.size();
      if (said < at) continue;
      changed = said;
      engine.set_weights(next, in_flight);
    }
    EXPECT_EQ(engine.counters().mixed_version_tokens > 0, in_flight == InFlight::go_on);
    return changed;
  };
  std::vector<std::vector<std::uint32_t>> ways;
  for (const InFlight in_flight : {InFlight::go_on, InFlight::finish, InFlight::reprefill}) {
    std::int64_t accepted = 0;
    for (const std::size_t at : {1u, 7u, 12u}) {
      Generation whole, got, want;
      run(request, in_flight, at, whole);
      const std::size_t changed = run(guessed(request, Guesses::random, whole, vocabulary, 5), in_flight, at, got);
      EXPECT_EQ(run(request, in_flight, changed, want), changed);
      EXPECT_EQ(all_bits_of(got), all_bits_of(want)) << static_cast<int>(in_flight) << ", at " << at;
      accepted += got.drafts.accepted;
    }
    EXPECT_GT(accepted, 5) << static_cast<int>(in_flight);
    Generation at_seven;
    run(request, in_flight, 7, at_seven);
    ways.push_back(all_bits_of(at_seven));
  }
  EXPECT_NE(ways[0], ways[1]);  // the three are not one
  EXPECT_NE(ways[0], ways[2]);
  EXPECT_NE(ways[1], ways[2]);
}

// Requests under two adapters and under none, in one batch: what each says does not depend on guesses, whose rows are computed under its own.
TEST(Drafts, ChangeNoBitUnderAdapters) {
  Plant plant("sharing", "cpu-bf16w", {.threads = 2});
  const std::int64_t vocabulary = plant.runtime.model->facts().vocabulary;
  const auto layout = std::make_shared<const AdapterLayout>(plant.runtime.model->manifest(), AdapterSettings{.rank = 4, .alpha = 7, .unembedding = true});
  std::vector<std::shared_ptr<const AdapterWeights>> adapters;
  for (const std::uint64_t seed : {5u, 6u}) adapters.push_back(make_adapter(plant.runtime.backend, layout, stirred(*layout, seed), seed));
  const std::vector<Request> bare = requests_of_all_kinds(18, 7, vocabulary);
  std::vector<Request> requests = bare;
  for (std::size_t i = 0; i < requests.size(); ++i)
    if (i % 3 > 0) requests[i].adapter = adapters[i % 3 - 1];
  Engine plain(plant.runtime, plant.weights, {.page_size = 4, .cache_pages = 600});
  const std::vector<Generation> want = plain.generate(constrained(requests, vocabulary)), without = plain.generate(constrained(bare, vocabulary));
  std::int64_t adapted = 0;  // the control: adapters are felt
  for (std::size_t i = 0; i < want.size(); ++i) adapted += all_bits_of(want[i]) != all_bits_of(without[i]);
  EXPECT_GT(adapted, 6);
  for (const Guesses guesses : kAllGuesses)
    for (const std::int64_t pages : {600, 26}) {
      Engine engine(plant.runtime, plant.weights, {.page_size = 4, .cache_pages = pages, .max_batch_rows = pages == 26 ? 32 : 300});
      const std::string what = fmt::format("guesses {}, {} pages", static_cast<int>(guesses), pages);
      expect_same(engine.generate(constrained(with_guesses(requests, guesses, want, vocabulary, pages == 26 ? 3 : 8), vocabulary)), want, what);
      EXPECT_GT(engine.counters().drafts.drafts, 0) << what;
      EXPECT_GT(engine.counters().most_adapters, 1) << what;
      if (guesses == Guesses::perfect) {
        EXPECT_EQ(engine.counters().drafts.accepted, engine.counters().drafts.tokens) << what;
      }
    }
}

// Control: noise that depends on the step and not on the position. Then guesses change what is said, and the comparison above sees it.
TEST(Drafts, NoiseByStepWouldBeSeen) {
  Plant plant("sharing", "cpu-bf16w", {.threads = 1});
  const std::int64_t vocabulary = plant.runtime.model->facts().vocabulary;
  const Request request{.prompt = {4, 5, 6, 7}, .sampling = {.seed = 3, .max_tokens = 30}};
  const auto run = [&](const Request& asked, bool by_step) {
    Engine engine(plant.runtime, plant.weights);
    return said_with_noise(engine, asked, by_step);
  };
  for (const bool by_step : {false, true}) {
    const Generation want = run(request, by_step);
    const bool same = all_bits_of(run(guessed(request, Guesses::perfect, want, vocabulary, 5), by_step)) == all_bits_of(want);
    EXPECT_EQ(same, !by_step);
  }
}

// Control: rows under another leaf count (study-leaves) do not verify what this one says.
TEST(Drafts, VerificationUnderAnotherLeafCountWouldBeSeen) {
  Plant plant("wide", "cpu-bf16w", {.threads = 1}), other("wide", "study-leaves", {.threads = 1});
  const std::int64_t vocabulary = plant.runtime.model->facts().vocabulary;
  const Request request{.prompt = {4, 5, 6, 7}, .sampling = {.seed = 3, .max_tokens = 30}};
  Engine right(plant.runtime, plant.weights), wrong(other.runtime, other.weights);
  const Generation want = right.generate({request})[0];
  const Request ahead = guessed(request, Guesses::perfect, want, vocabulary, 5);
  EXPECT_EQ(all_bits_of(right.generate({ahead})[0]), all_bits_of(want));
  EXPECT_NE(all_bits_of(wrong.generate({ahead})[0]), all_bits_of(want));
}

// Control: tokens that were guessed wrongly and entered in the prefix cache all the same. Whoever asks for that text reads entries of another.
TEST(Drafts, WrongGuessesInThePrefixCacheWouldBeSeen) {
  Plant plant("sharing", "cpu-bf16w", {.threads = 1});
  const std::int64_t vocabulary = plant.runtime.model->facts().vocabulary;
  const EngineOptions options{.page_size = 4, .cache_pages = 40};
  const std::vector<std::int32_t> prompt{4, 5, 6, 7, 8, 9}, wrong{10, 11, 12, 13, 14, 15};
  std::vector<std::int32_t> text = prompt;
  text.insert(text.end(), wrong.begin(), wrong.end());
  Engine plain(plant.runtime, plant.weights, options);
  const Generation said = plain.generate({{.prompt = prompt, .sampling = {.seed = 2, .max_tokens = 12}}})[0];
  const Request asked{.prompt = text, .sampling = {.seed = 5, .max_tokens = 4}};
  const auto want = all_bits_of(plain.generate({asked})[0]);
  Request hostile{.prompt = prompt, .sampling = {.seed = 2, .max_tokens = 12}};
  hostile.drafts = DraftOptions{.length = DraftOptions::Length::fixed, .tokens = 6};
  hostile.draft_script = [&](std::span<const std::int32_t> now, std::int64_t, std::vector<std::int32_t>& out) {
    if (now.size() == prompt.size()) out = wrong;
  };
  {
    Engine engine(plant.runtime, plant.weights, options);
    EXPECT_EQ(all_bits_of(engine.generate({hostile})[0]), all_bits_of(said));
    EXPECT_EQ(engine.counters().drafts.tokens, 6);
    EXPECT_EQ(all_bits_of(engine.generate({asked})[0]), want);
    EXPECT_EQ(engine.counters().cache_hit_tokens, 4);  // the page of the prompt
  }
  // The same step, with the guesses taken for text when pages are entered.
  EngineCounters counters;
  Scheduler scheduler(options, options.cache_pages, counters);
  RankSteps steps(plant.runtime, options);
  steps.set_weights(plant.weights);
  const auto run = [&](std::vector<std::int32_t> tokens, std::int64_t forget) {
    Sequence s;
    s.id = 1 + static_cast<std::uint64_t>(counters.forwards);
    s.tokens = std::move(tokens);
    s.prompt_length = s.known();
    s.sampling = asked.sampling;
    scheduler.add(s);
    StepWants wants;
    StepResult result;
    std::vector<PlannedSlice> plan = scheduler.plan();
    want_as_asked(plan, 0, vocabulary, wants);
    steps.run(plan, wants, result);
    scheduler.commit(plan[0]);
    const StepResult::Sampled sampled = result.sampled(0)[0];
    if (forget > 0) {  // what was guessed is taken back, and another text comes into its places; its page stays entered
      for (std::size_t i = 0; i < wrong.size(); ++i) s.tokens[prompt.size() + i] = said.tokens[i].id;
      s.computed = static_cast<std::int64_t>(prompt.size());
      plan = scheduler.plan();
      want_as_asked(plan, 0, vocabulary, wants);
      steps.run(plan, wants, result);
      scheduler.commit(plan[0]);
    }
    scheduler.remove(s);
    return std::pair(sampled.token, std::bit_cast<std::uint32_t>(sampled.raw_logprob));
  };
  const auto first = run(text, 1);
  const auto again = run(text, 0);
  EXPECT_NE(first, again);  // it read pages that hold another text
}

// Guesses that are drawn from other weights' distribution q with the same noise are right as often as the law says: sum over v of 1 / sum over w of
// max(p_w / p_v, q_w / q_v). Those of a greedy draft as often as p(arg-max q), and any others as often as they are likely under p.
TEST(Drafts, AreRightAsOftenAsTheLawSays) {
  Plant plant("sharing", "cpu-f32", {.threads = 2}, 256);
  WeightImages near = plant.images;  // weights a little aside: a draft model
  RandomSequence draws(12, RandomStream::fuzz);
  for (auto& image : near)
    for (float& x : image) x *= static_cast<float>(1 + 0.3 * (draws.uniform() - 0.5));
  const auto draft_weights = make_weight_set(plant.runtime.backend, plant.runtime.model->manifest(), near, plant.runtime.profile, 2);
  const std::int64_t vocabulary = plant.runtime.model->facts().vocabulary;
  Engine engine(plant.runtime, plant.weights, {.cache_pages = 2000}), draft_engine(plant.runtime, draft_weights, {.cache_pages = 2000});
  constexpr int kTexts = 24, kTokens = 100;
  std::vector<Request> requests;
  for (int i = 0; i < kTexts; ++i)
    requests.push_back({.prompt = random_tokens(draws, 3, vocabulary), .sampling = {.seed = 100 + static_cast<std::uint64_t>(i), .max_tokens = kTokens}});
  const std::vector<Generation> said = engine.generate(requests);
  // All distributions of the texts under both, and what each would have said at each place with the same noise: one token of it.
  std::vector<Request> scores;
  for (int i = 0; i < kTexts; ++i) {
    Request r{.prompt = requests[static_cast<std::size_t>(i)].prompt, .sampling = {.max_tokens = 0}, .prompt_logprobs = true};
    for (const GeneratedToken& t : said[static_cast<std::size_t>(i)].tokens) r.prompt.push_back(t.id);
    r.prompt_targets_per_row = static_cast<std::int32_t>(vocabulary);
    for (std::size_t row = 0; row + 1 < r.prompt.size(); ++row)
      for (std::int32_t t = 0; t < vocabulary; ++t) r.prompt_targets.push_back(t);
    scores.push_back(std::move(r));
  }
  const std::vector<Generation> p_of = engine.generate(scores), q_of = draft_engine.generate(scores);
  using Chances = std::vector<std::vector<double>>;
  Chances coupled(kTexts), fixed(kTexts), greedy(kTexts);
  std::vector<std::vector<std::int32_t>> would(kTexts), likeliest(kTexts);  // the draft model's token at each place of the text: with that noise; without any
  std::vector<Request> ones;
  for (int i = 0; i < kTexts; ++i)
    for (int t = 0; t < kTokens; ++t) {
      const Request& r = scores[static_cast<std::size_t>(i)];
      Request one{.prompt = {r.prompt.begin(), r.prompt.begin() + 3 + t}, .sampling = requests[static_cast<std::size_t>(i)].sampling};
      one.sampling.max_tokens = 1;
      ones.push_back(std::move(one));
    }
  const std::vector<Generation> drafted = draft_engine.generate(ones);
  for (std::size_t i = 0; i < kTexts; ++i)
    for (std::size_t t = 0; t < kTokens; ++t) {
      const std::size_t row = (2 + t) * static_cast<std::size_t>(vocabulary);
      std::vector<double> p, q;
      for (std::int64_t v = 0; v < vocabulary; ++v) {
        p.push_back(std::exp(static_cast<double>(p_of[i].prompt_target_logprobs[row + static_cast<std::size_t>(v)])));
        q.push_back(std::exp(static_cast<double>(q_of[i].prompt_target_logprobs[row + static_cast<std::size_t>(v)])));
      }
      double chance = 0;
      for (std::size_t v = 0; v < p.size(); ++v) {
        double sum = 0;
        for (std::size_t w = 0; w < p.size(); ++w) sum += std::max(p[w] / p[v], q[w] / q[v]);
        chance += 1 / sum;
      }
      would[i].push_back(drafted[i * kTokens + t].tokens[0].id);
      coupled[i].push_back(chance);
      fixed[i].push_back(p[(i * 7 + t) % p.size()]);
      const std::ptrdiff_t top = std::max_element(q.begin(), q.end()) - q.begin();
      likeliest[i].push_back(static_cast<std::int32_t>(top));
      greedy[i].push_back(p[static_cast<std::size_t>(top)]);
    }
  // How many guesses were right, against the sum of their chances over the places that were checked.
  const auto check = [&](const Chances& chances, const auto& guess) {
    std::vector<Request> ahead = requests;
    double expected = 0, variance = 0;
    for (std::size_t i = 0; i < ahead.size(); ++i) {
      ahead[i].drafts = DraftOptions{.length = DraftOptions::Length::fixed, .tokens = 1};
      ahead[i].draft_script = [&, i](std::span<const std::int32_t> now, std::int64_t, std::vector<std::int32_t>& out) {
        const double chance = chances[i][now.size() - 3];
        expected += chance, variance += chance * (1 - chance);
        out.push_back(guess(i, now.size() - 3));
      };
    }
    Engine measured(plant.runtime, plant.weights, {.cache_pages = 2000});
    expect_same(measured.generate(ahead), said, "the law");
    const DraftCounters& c = measured.counters().drafts;
    EXPECT_LT(std::abs(static_cast<double>(c.accepted) - expected), 4 * std::sqrt(variance)) << c.accepted << " of " << c.tokens << ", expected " << expected;
    return static_cast<double>(c.accepted) / static_cast<double>(c.tokens);
  };
  const double rate = check(coupled, [&](std::size_t i, std::size_t t) { return would[i][t]; });
  EXPECT_GT(rate, 0.2);
  EXPECT_LT(rate, 0.95);
  const double any = check(fixed, [&](std::size_t i, std::size_t t) { return static_cast<std::int32_t>((i * 7 + t) % static_cast<std::size_t>(vocabulary)); });
  const double by_greedy = check(greedy, [&](std::size_t i, std::size_t t) { return likeliest[i][t]; });
  EXPECT_GT(by_greedy, any);
  EXPECT_LT(by_greedy, 0.95);
}

// Lengths that follow measured costs: no bit depends on them, and where guesses are never right nearly none are made.
TEST(Drafts, AutoStopsGuessingWhereItIsWrong) {
  Plant plant("sharing", "cpu-bf16w", {.threads = 1}, 256);
  const std::int64_t vocabulary = plant.runtime.model->facts().vocabulary;
  std::vector<Request> requests;
  for (std::int32_t i = 0; i < 4; ++i) requests.push_back({.prompt = {4, 5, i}, .sampling = {.seed = static_cast<std::uint64_t>(i), .max_tokens = 200}});
  Engine plain(plant.runtime, plant.weights);
  const std::vector<Generation> want = plain.generate(requests);
  for (const Guesses guesses : {Guesses::hostile, Guesses::perfect}) {
    std::vector<Request> ahead = with_guesses(requests, guesses, want, vocabulary, 5);
    for (Request& r : ahead) r.drafts->length = DraftOptions::Length::automatic;
    Engine engine(plant.runtime, plant.weights);
    expect_same(engine.generate(ahead), want, "auto");
    const DraftCounters& c = engine.counters().drafts;
    if (guesses == Guesses::hostile) {
      EXPECT_LT(c.tokens, 200) << "of 800 tokens";
    } else {
      EXPECT_GT(c.tokens, 0);
    }
  }
}

}  // namespace
}  // namespace lockstep
