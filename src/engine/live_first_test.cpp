// Live work and rollouts in one engine, with and without EngineOptions::live_token_seconds: times are computed where they count.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/engine_test_tools.h"
#include "engine/scheduler_test_tools.h"

namespace lockstep {
namespace {

struct TwoClasses {
  FairShares shares;
  std::shared_ptr<ShareAccount> live = shares.account(WorkClass::live, "people"), rollouts = shares.account(WorkClass::rollouts, "loop");
};

// What a step takes where nothing disturbs it, and a tenth more or less.
class StepTime {
 public:
  double of(const std::vector<PlannedSlice>& plan) {
    double rows = 0, keys = 0;
    for (const PlannedSlice& p : plan) {
      rows += static_cast<double>(p.count);
      keys += static_cast<double>(p.count * (p.begin + p.count));
    }
    return (0.004 + 5e-4 * rows + 2e-6 * keys) * (0.9 + 0.2 * draws_.uniform());
  }

 private:
  RandomSequence draws_{11, RandomStream::fuzz};
};

// Poisson arrivals of live requests over rollouts that are never fewer than `rollouts`.
struct Served {
  double gap = 0, first = 0;         // 95th percentiles over live tokens and requests
  double rollout_tokens_second = 0;  // of rollouts
  std::size_t gaps = 0;
};
double percentile_95(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() * 95 / 100];
}
Served serve(double live_token_seconds, int rollouts, double live_a_second, double seconds) {
  TwoClasses of;
  StepTime time;
  SchedulerBench b(
      {.page_size = 8, .max_batch_rows = 512, .max_sequences = 128, .prefill_chunk = 64, .prefix_cache = false, .live_token_seconds = live_token_seconds},
      4096);
  b.seconds_of = [&](const std::vector<PlannedSlice>& plan) { return time.of(plan); };
  RandomSequence draws(12, RandomStream::fuzz);
  struct Live {
    Sequence* sequence;
    double came;
    std::int64_t known;
    double told;
  };
  std::vector<Live> streams;
  std::vector<Sequence*> others;
  std::vector<double> gaps, firsts;
  double next = live_a_second > 0 ? 0.2 : seconds + 1, rollout_tokens = 0;
  constexpr double kWarm = 1;
  int numbers = 0;
  while (b.now < seconds) {
    for (; next <= b.now; next -= std::log(draws.uniform()) / live_a_second) {
      Sequence& s = b.add(bits_of(numbers++, 24), 20, nullptr, of.live);
      streams.push_back({&s, next, s.known(), next});
    }
    std::erase_if(others, [](const Sequence* s) { return s->generation.finish != FinishReason::none; });
    for (; static_cast<int>(others.size()) < rollouts; ++numbers)
      others.push_back(&b.add(bits_of(numbers, 16 + numbers % 13), 40 + numbers % 17, nullptr, of.rollouts));
    std::vector<std::int64_t> before;
    for (const Sequence* s : others) before.push_back(s->known());
    if (!b.step()) {
      b.now = next;
      continue;
    }
    for (std::size_t i = 0; i < others.size(); ++i) rollout_tokens += b.now > kWarm ? static_cast<double>(others[i]->known() - before[i]) : 0;
    for (Live& one : streams) {
      if (one.sequence->known() == one.known) continue;
      const bool is_first = one.known == one.sequence->prompt_length;
      if (b.now > kWarm) (is_first ? firsts : gaps).push_back(b.now - (is_first ? one.came : one.told));
      one.known = one.sequence->known();
      one.told = b.now;
    }
    std::erase_if(streams, [](const Live& one) { return one.sequence->generation.finish != FinishReason::none; });
  }
  return {percentile_95(gaps), percentile_95(firsts), rollout_tokens / (seconds - kWarm), gaps.size()};
}

TEST(LiveFirst, LiveTokensComeInTimeBesideRolloutsThatFillTheRest) {
  constexpr double kBound = 0.02;
  const Served with = serve(kBound, 64, 6, 9), without = serve(0, 64, 6, 9), alone = serve(kBound, 64, 0, 9), live_alone = serve(kBound, 0, 6, 9);
  ASSERT_GT(with.gaps, 200u);
  EXPECT_LE(with.gap, 1.05 * kBound);
  EXPECT_GT(without.gap, 1.5 * kBound);  // by shares all rollouts that run are in every step
  EXPECT_LT(with.first, without.first);
  EXPECT_GE(with.rollout_tokens_second, 0.55 * alone.rollout_tokens_second);
  EXPECT_EQ(live_alone.rollout_tokens_second, 0);
}

TEST(LiveFirst, RolloutsMakeProgressWhereLiveRowsAloneTakeTooLong) {
  TwoClasses of;
  SchedulerBench b({.page_size = 4, .max_batch_rows = 512, .max_sequences = 64, .prefill_chunk = 8, .live_token_seconds = 0.001}, 4000);
  StepTime time;
  b.seconds_of = [&](const std::vector<PlannedSlice>& plan) { return time.of(plan); };
  for (int i = 0; i < 20; ++i) b.add(bits_of(i, 6), 4000, nullptr, of.live);
  std::vector<Sequence*> rollouts;
  for (int i = 0; i < 4; ++i) rollouts.push_back(&b.add(bits_of(100 + i, 20), 10, nullptr, of.rollouts));
  for (int i = 0; i < 40; ++i) b.step();
  std::int64_t rows = b.counters.other_rows;
  for (int i = 0; i < 80; ++i) b.step();
  EXPECT_EQ(b.counters.other_rows - rows, 80 / LiveRoom::kWaits * (20 / LiveRoom::kLiveRows));
  EXPECT_GT(b.counters.held_back_forwards, 100);
  for (int i = 0; i < 160; ++i) b.step();
  for (const Sequence* s : rollouts) EXPECT_EQ(s->generation.finish, FinishReason::length) << s->id;
}

TEST(LiveFirst, PlacesAndPagesGoToLiveOnesButForOneRollout) {
  TwoClasses of;
  for (const double bound : {0.0, 10.0}) {
    // Of 16 places, and then of pages for about 16 of these sequences.
    for (const auto& [sequences, pages] : {std::pair(16, 1000), std::pair(64, 80)}) {
      SchedulerBench b(
          {.page_size = 4, .max_batch_rows = 256, .max_sequences = sequences, .prefill_chunk = 8, .prefix_cache = false, .live_token_seconds = bound}, pages);
      b.seconds_of = [](const std::vector<PlannedSlice>&) { return 0.01; };
      for (int i = 0; i < 40; ++i) b.add(bits_of(i, 12), 60, nullptr, of.rollouts);
      for (int i = 0; i < 6; ++i) b.step();
      for (int i = 0; i < 40; ++i) b.add(bits_of(i, 12), 20, nullptr, of.live);
      for (int i = 0; i < 4; ++i) b.step();
      const auto rollouts = [&] {
        return std::count_if(b.scheduler.running().begin(), b.scheduler.running().end(), [](const Sequence* s) { return !is_live(*s); });
      };
      if (bound > 0) {
        EXPECT_EQ(rollouts(), 1) << sequences;
      } else {
        EXPECT_GT(rollouts(), 1) << sequences;
      }
      EXPECT_GT(b.scheduler.running().size(), 8u);
      while (b.step()) {
      }
      EXPECT_EQ(b.finished.size(), 80u);
    }
  }
}

// Runs to the end: how many of those, which have their pages, had to wait.
std::size_t that_waited(SchedulerBench& b, const std::vector<const Sequence*>& those) {
  std::set<std::uint64_t> waited;
  while (b.step()) {
    for (const Sequence* s : those)
      if (!s->running && s->generation.finish == FinishReason::none) waited.insert(s->id);
  }
  return waited.size();
}

// Six live answers, and behind them rollouts that need more pages than there are, under shares that put these before all live ones but the first.
struct PutBack {
  std::size_t live = 0;  // of the six
  std::int64_t all = 0;  // times that any was
};
PutBack put_back(double live_token_seconds) {
  FairShares shares(ClassShares{.percent = {1, 98, 1}});
  const auto live = shares.account(WorkClass::live, "people"), rollouts = shares.account(WorkClass::rollouts, "loop");
  SchedulerBench b(
      {.page_size = 2, .max_batch_rows = 256, .max_sequences = 32, .prefill_chunk = 8, .prefix_cache = false, .live_token_seconds = live_token_seconds}, 60);
  b.seconds_of = [](const std::vector<PlannedSlice>&) { return 0.01; };
  // Measured steps, so that time holds nobody back: the bounds are far away.
  for (int i = 0; i < 12; ++i) b.add(bits_of(i, 8), 2, nullptr, rollouts);
  while (b.step()) {
  }
  const std::int64_t before = b.counters.preemptions;
  std::vector<const Sequence*> people;
  for (int i = 0; i < 6; ++i) people.push_back(&b.add(bits_of(50 + i, 6), 8, nullptr, live));
  b.step();
  for (int i = 0; i < 12; ++i) b.add(bits_of(i, 8), 24, nullptr, rollouts);  // the six need 42 pages together, one rollout 16
  const std::size_t waited = that_waited(b, people);
  EXPECT_EQ(b.finished.size(), 30u);
  return {waited, b.counters.preemptions - before};
}

TEST(LiveFirst, ALiveOneIsNeverPutBackForARollout) {
  const PutBack with = put_back(10), without = put_back(0);
  EXPECT_EQ(with.live, 0u);
  EXPECT_GT(with.all, 0);  // rollouts were
  EXPECT_GE(without.live, 3u);
}

// One rollout beside three live answers that have all other pages, until it needs a third: it waits, though it stands before two of them.
TEST(LiveFirst, TheOnlyRolloutWaitsForPagesToo) {
  for (const double bound : {0.0, 10.0}) {
    TwoClasses of;
    SchedulerBench b({.page_size = 8, .max_batch_rows = 256, .max_sequences = 32, .prefill_chunk = 8, .prefix_cache = false, .live_token_seconds = bound}, 8);
    b.seconds_of = [](const std::vector<PlannedSlice>&) { return 0.01; };
    for (int i = 0; i < 12; ++i) b.add(bits_of(i, 8), 4, nullptr, of.rollouts);  // measured steps
    while (b.step()) {
    }
    std::vector<const Sequence*> people;
    for (int i = 0; i < 3; ++i) people.push_back(&b.add(bits_of(50 + i, 4), 12, nullptr, of.live));
    b.add(bits_of(1, 8), 20, nullptr, of.rollouts);
    b.step();
    EXPECT_EQ(b.scheduler.running().size(), 4u);
    EXPECT_EQ(that_waited(b, people), bound > 0 ? 0u : 1u) << bound;
    EXPECT_EQ(b.finished.size(), 16u);
  }
}

// The engine itself, whose steps are measured: whatever the bound, and whoever is live, answers have their bits.
TEST(LiveFirst, NoBitChanges) {
  Plant plant;
  TwoClasses of;
  const auto answers = [&](double bound, std::uint64_t seed, EngineCounters& counters, bool guesses = false) {
    Engine engine(plant.runtime, plant.weights,
                  {.page_size = 4, .cache_pages = 100, .max_batch_rows = 48, .max_sequences = 12, .prefill_chunk = 9, .live_token_seconds = bound});
    std::vector<Request> requests = random_requests(24, seed, plant.runtime.model->facts().vocabulary);
    for (std::size_t i = 0; i < requests.size(); ++i) requests[i].account = i % 3 == 0 ? of.live : of.rollouts;
    for (Request& r : requests) {
      if (!guesses) break;
      r.drafts = DraftOptions{.length = DraftOptions::Length::fixed, .tokens = 3};
      r.draft_script = [](std::span<const std::int32_t> text, std::int64_t most, std::vector<std::int32_t>& out) {
        for (std::int64_t i = 0; i < most; ++i) out.push_back(text.back());
      };
    }
    std::vector<std::vector<std::uint32_t>> bits = bits_of(engine.generate(std::move(requests)));
    counters = engine.counters();
    return bits;
  };
  EngineCounters without, tight, loose, tight_guessed, loose_guessed;
  const auto expected = answers(0, 5, without);
  EXPECT_EQ(answers(1e-6, 5, tight), expected);
  EXPECT_EQ(answers(30, 5, loose), expected);
  EXPECT_EQ(answers(1e-6, 5, tight_guessed, true), expected);
  EXPECT_EQ(answers(30, 5, loose_guessed, true), expected);
  for (const EngineCounters& c : {tight_guessed, loose_guessed}) EXPECT_GT(c.draft_rows, 20);
  EXPECT_EQ(without.draft_rows, 0);
  EXPECT_EQ(without.held_back_forwards, 0);
  EXPECT_GT(tight.held_back_forwards, 5);  // it was another way
  EXPECT_GT(tight.forwards, loose.forwards);
  EXPECT_GT(without.live_rows, 0);
  EXPECT_GT(without.other_rows, 0);
  EXPECT_NE(answers(1e-6, 6, tight), expected);
}

TEST(LiveFirst, ABoundIsATime) {
  Plant plant;
  for (const double bound : {-0.001, 61.0, std::nan("")}) {
    try {
      Engine engine(plant.runtime, plant.weights, {.live_token_seconds = bound});
      ADD_FAILURE() << bound;
    } catch (const Error& e) {
      EXPECT_NE(e.message().find("live_token_seconds is"), std::string::npos) << e.message();
      EXPECT_NE(e.message().find("allowed is 0 (no bound) to 60"), std::string::npos) << e.message();
    }
  }
}

// A rollout's long prompt comes between live tokens a little at a time, also where no bound is asked for; a live request that comes meanwhile does not wait for
// other rollouts' prompts. A long prompt of a live request of a server makes steps at most 1 + kLivePromptShare times as long. Prompts of nobody's account, the
// control, are in the step as far as the step has rows.
TEST(LiveFirst, ALongPromptOfARolloutGivesWay) {
  TwoClasses of;
  constexpr int kStreams = 40;
  const auto longest_gap = [&](const std::shared_ptr<ShareAccount>& whose) {
    SchedulerBench b({.page_size = 8, .max_batch_rows = 512, .max_sequences = 64, .prefill_chunk = 128, .prefix_cache = false}, 4096);
    b.seconds_of = [](const std::vector<PlannedSlice>& plan) {
      double rows = 0;
      for (const PlannedSlice& p : plan) rows += static_cast<double>(p.count);
      return 0.02 + 0.002 * rows;
    };
    Sequence& stream = b.add(bits_of(1, 20), 400, nullptr, of.live);
    for (int i = 1; i < kStreams; ++i) b.add(bits_of(100 + i, 20), 400, nullptr, of.live);  // so many that the rollouts come before another one
    for (int i = 0; i < 20; ++i) b.step();
    std::vector<Sequence*> prompts;
    for (int i = 0; i < 4; ++i) prompts.push_back(&b.add(bits_of(2 + i, 600), 2, nullptr, whose));
    double longest = 0;
    Sequence* late = nullptr;
    int steps = 0;
    while (std::any_of(prompts.begin(), prompts.end(), [](const Sequence* s) { return s->generation.finish == FinishReason::none; }) && stream.known() < 419) {
      if (++steps == 10) late = &b.add(bits_of(99, 16), 400, nullptr, of.live);
      const double before = b.now;
      const std::int64_t known = stream.known();
      b.step();
      EXPECT_EQ(stream.known(), known + 1);
      longest = std::max(longest, b.now - before);
      if (late && steps == 12) {
        EXPECT_GT(late->known(), 16);
      }
    }
    EXPECT_LT(stream.known(), 419);
    return longest;
  };
  EXPECT_LE(longest_gap(of.rollouts),
            0.02 + 0.002 * (kStreams + 1) + 1.1 * LiveRoom::kPromptSeconds + 0.002 * 16);  // a live prompt of 16 rows is in one of them
  // A late one of 16 rows and predictions of 19 steps in 20 beside.
  EXPECT_LE(longest_gap(of.live), 1.2 * (1 + LiveRoom::kLivePromptShare) * (0.02 + 0.002 * (kStreams + 1)) + 0.002 * 16);
  EXPECT_GT(longest_gap(nullptr), 1);
}

// Eight streams beside a prompt so long that its rows at the end cost many times those of its beginning, and beside two of them: 19 steps in 20 are at most
// three times as long as without, prompts advance in every step, and a short request that comes meanwhile has its first token at once. Where nobody decodes, a
// prompt has whole chunks.
TEST(LiveFirst, ALongPromptDoesNotStallItsNeighbours) {
  TwoClasses of;
  constexpr int kStreams = 8, kChunk = 64;
  const auto seconds_of = [](const std::vector<PlannedSlice>& plan) {
    double rows = 0, keys = 0;
    for (const PlannedSlice& p : plan) rows += static_cast<double>(p.count), keys += static_cast<double>(p.count * (p.begin + p.count));
    return 0.004 + 5e-4 * rows + 2e-6 * keys;
  };
  for (const int many : {1, 2})
    for (const double bound : {0.0, 0.03}) {
      SchedulerBench b(
          {.page_size = 8, .max_batch_rows = 512, .max_sequences = 64, .prefill_chunk = kChunk, .prefix_cache = false, .live_token_seconds = bound}, 4096);
      b.seconds_of = seconds_of;
      std::vector<Sequence*> streams, prompts;
      for (int i = 0; i < kStreams; ++i) streams.push_back(&b.add(bits_of(i, 20), 4000, nullptr, of.live));
      for (int i = 0; i < 20; ++i) b.step();
      const auto alone = [&] {
        std::vector<PlannedSlice> plan;
        for (Sequence* stream : streams) plan.push_back({stream, stream->computed, 1, true, true});
        return seconds_of(plan);
      };
      for (int i = 0; i < many; ++i) prompts.push_back(&b.add(bits_of(50 + i, 1000), 2, nullptr, of.live));
      std::vector<double> times_as_long;
      int steps = 0;
      for (; prompts.back()->known() == prompts.back()->prompt_length && steps < 1500; ++steps) {
        if (steps == 20) streams.push_back(&b.add(bits_of(90, 16), 4000, nullptr, of.live));
        const double before = b.now, without = alone();
        const std::size_t ended = b.finished.size();
        const auto computed = [&] {
          std::int64_t sum = 0;
          for (const Sequence* s : prompts) sum += s->computed;
          return sum;
        };
        const std::int64_t done = computed();
        std::vector<std::int64_t> known;
        for (const Sequence* s : streams) known.push_back(s->known());
        b.step();
        for (std::size_t i = 0; i < streams.size(); ++i) EXPECT_GT(streams[i]->known(), known[i]) << steps;
        if (b.finished.size() == ended) {
          EXPECT_GT(computed(), done);
        }
        times_as_long.push_back((b.now - before) / without);
      }
      EXPECT_LT(steps, 1500);
      EXPECT_GT(steps, 1000 / kChunk * 2);  // chunks were smaller
      EXPECT_LE(percentile_95(times_as_long), 3) << many << " " << bound;
    }
  SchedulerBench b({.page_size = 8, .max_batch_rows = 512, .max_sequences = 64, .prefill_chunk = kChunk, .prefix_cache = false}, 4096);
  b.seconds_of = seconds_of;
  for (const Sequence* s : {&b.add(bits_of(1, 1500), 2, nullptr, of.live), &b.add(bits_of(2, 1500), 2, nullptr, of.live)}) EXPECT_EQ(s->computed, 0);
  for (int i = 1; i <= 10; ++i) {
    b.step();
    EXPECT_EQ(b.at(0).computed, i * kChunk);
  }
}

}  // namespace
}  // namespace lockstep
