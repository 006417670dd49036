#include "engine/scheduler.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "engine/scheduler_test_tools.h"

namespace lockstep {
namespace {

using Bench = SchedulerBench;

TEST(Scheduler, DecodesFirstThenChunks) {
  Bench b({.page_size = 4, .max_batch_rows = 6, .max_sequences = 4, .prefill_chunk = 4}, 64);
  b.add(bits_of(1, 3), 8);
  EXPECT_TRUE(b.step());
  b.add(bits_of(2, 10), 1);
  const std::vector<PlannedSlice> plan = b.scheduler.plan();
  ASSERT_EQ(plan.size(), 2u);
  EXPECT_TRUE(plan[0].decode);
  EXPECT_EQ(plan[1].count, 4);
  EXPECT_FALSE(plan[1].last);
  EXPECT_EQ(b.counters.mixed_batches, 1);
  EXPECT_EQ(b.counters.chunks, 1);
}

TEST(Scheduler, OnePromptSubmittedManyTimesIsComputedOnce) {
  Bench b({.page_size = 4, .max_batch_rows = 64, .prefill_chunk = 16}, 64);
  for (int i = 0; i < 8; ++i) b.add(bits_of(5, 9), 4);
  EXPECT_TRUE(b.step());
  EXPECT_EQ(b.counters.rows, 9 + 7);  // the last page is each one's own
  EXPECT_EQ(b.counters.cache_hit_tokens, 7 * 8);
  while (b.step()) {
  }
  EXPECT_EQ(b.finished.size(), 8u);
}

TEST(Scheduler, TheLastPromptTokenIsAlwaysComputed) {
  Bench b({.page_size = 4, .max_batch_rows = 64, .prefill_chunk = 16}, 64);
  b.add(bits_of(5, 8), 1);
  EXPECT_TRUE(b.step());
  b.add(bits_of(5, 8), 1);
  EXPECT_TRUE(b.step());
  EXPECT_EQ(b.counters.cache_hit_tokens, 4);
  EXPECT_EQ(b.counters.rows, 8 + 4);
}

TEST(Scheduler, TheYoungestMakesRoomAndComesBackFirst) {
  Bench b({.page_size = 2, .max_batch_rows = 64, .prefill_chunk = 16, .prefix_cache = false}, 6);
  b.add(bits_of(1, 4), 8);
  b.add(bits_of(2, 4), 8);
  b.add(bits_of(3, 4), 8);
  while (b.step()) {
  }
  EXPECT_GT(b.counters.preemptions, 0);
  EXPECT_EQ(b.finished, (std::vector<std::uint64_t>{1, 2, 3}));
}

// What one stream of a key goes through beside many of another, which keep coming.
struct OneBesideMany {
  int first_token = 0;                                             // steps until it
  int steps = 0, in_steps = 0;                                     // after that; and in which it had a row
  std::int64_t fewest = std::numeric_limits<std::int64_t>::max();  // sequences in a step
};
OneBesideMany one_beside(int many, const EngineOptions& options, std::int64_t pages, const std::shared_ptr<ShareAccount>& ones,
                         const std::shared_ptr<ShareAccount>& others) {
  constexpr int kPrompt = 24, kSaid = 60;
  Bench b(options, pages);
  for (int i = 0; i < many; ++i) b.add(bits_of(i, 20), 200, nullptr, others);
  for (int i = 0; i < 12; ++i) b.step();
  Sequence& one = b.add(bits_of(3, kPrompt), kSaid, nullptr, ones);
  OneBesideMany seen;
  while (one.known() == kPrompt && seen.first_token < 30) {
    b.add(bits_of(seen.first_token, 20), 200, nullptr, others);
    b.step();
    ++seen.first_token;
  }
  while (one.generation.finish == FinishReason::none && seen.steps < 100) {
    b.add(bits_of(seen.steps, 20), 200, nullptr, others);
    const std::int64_t before = one.known();
    b.step();
    ++seen.steps;
    seen.in_steps += one.known() > before;
    seen.fewest = std::min(seen.fewest, static_cast<std::int64_t>(b.scheduler.running().size()));
  }
  return seen;
}

TEST(Scheduler, OneStreamOfAKeyIsInEveryStepBesideManyOfAnother) {
  FairShares shares;
  const auto ann = shares.account(WorkClass::live, "ann"), bob = shares.account(WorkClass::live, "bob"), cid = shares.account(WorkClass::rollouts, "cid");
  const EngineOptions options{.page_size = 4, .max_batch_rows = 64, .max_sequences = 32, .prefill_chunk = 8, .prefix_cache = false};
  const EngineOptions places{.page_size = 4, .max_batch_rows = 640, .max_sequences = 600, .prefill_chunk = 8, .prefix_cache = false};
  constexpr int kPromptSteps = 3;  // of chunks
  for (const int many : {64, 600})
    for (const auto& others : {bob, cid}) {
      // Too few places; too few pages, and too few of both.
      for (const auto& [given, pages] : {std::pair(options, 2000), std::pair(places, 240), std::pair(options, 200)}) {
        const OneBesideMany seen = one_beside(many, given, pages, ann, others);
        EXPECT_LE(seen.first_token, kPromptSteps + 2) << many << " " << pages;
        EXPECT_EQ(seen.steps, 59) << many << " " << pages;
        EXPECT_EQ(seen.in_steps, seen.steps) << many << " " << pages;
        EXPECT_GT(seen.fewest, 5) << many << " " << pages;  // the others' run in the same steps
      }
    }
  EXPECT_EQ(one_beside(600, options, 2000, ann, ann).first_token, 30);  // of one key: it waits for its turn
}

TEST(Scheduler, WeightsAndClassesShareThePlaces) {
  FairShares shares;
  shares.set_keys({{"ann", 1}, {"bob", 3}});
  const auto ann = shares.account(WorkClass::live, "ann"), bob = shares.account(WorkClass::live, "bob"), cid = shares.account(WorkClass::rollouts, "cid");
  Bench b({.page_size = 4, .max_batch_rows = 64, .max_sequences = 16, .prefill_chunk = 8}, 1000);
  for (const auto& account : {cid, ann, bob})
    for (int i = 0; i < 40; ++i) b.add(bits_of(i, 6), 60, nullptr, account);
  std::map<const ShareAccount*, int> running;
  for (int i = 0; i < 3; ++i) b.step();
  const std::int64_t preemptions = b.counters.preemptions;
  for (int i = 0; i < 5; ++i) b.step();
  EXPECT_EQ(b.counters.preemptions, preemptions);  // once they are shared, nobody gives way any more
  for (const Sequence* s : b.scheduler.running()) ++running[s->account.get()];
  EXPECT_EQ(running[cid.get()], 4);  // 20 of 80
  EXPECT_EQ(running[ann.get()], 3);
  EXPECT_EQ(running[bob.get()], 9);
}

TEST(Scheduler, NewWeightsDoNotUseOldPages) {
  Bench b({.page_size = 2, .max_batch_rows = 64, .prefill_chunk = 16}, 64);
  Sequence& long_one = b.add(bits_of(9, 6), 10);
  EXPECT_TRUE(b.step());
  b.scheduler.set_weights(2 * kOldWeights);
  EXPECT_TRUE(long_one.mixed_versions);
  b.add(bits_of(9, 6), 1);
  EXPECT_TRUE(b.step());
  EXPECT_EQ(b.counters.cache_hit_tokens, 0);
  b.add(bits_of(9, 6), 1);
  EXPECT_TRUE(b.step());
  EXPECT_EQ(b.counters.cache_hit_tokens, 4);
  while (b.step()) {
  }
  EXPECT_EQ(b.finished.size(), 3u);
}

TEST(Scheduler, SetsOfWeightsTakeTurnsWhateverTheirNumbersOfRequests) {
  Bench b({.page_size = 2, .max_batch_rows = 64, .prefill_chunk = 16}, 256);
  const auto one = std::make_shared<WeightSet>(), two = std::make_shared<WeightSet>();
  for (int i = 0; i < 8; ++i) b.add(bits_of(i, 6), 30);
  Sequence& first = b.add(bits_of(1, 6), 10, one);
  std::map<const WeightSet*, int> turns;
  for (int i = 0; i < 24; ++i) {
    // Requests that come and go under ever new weights delay the others, and stop nobody.
    if (i % 2) b.add(bits_of(i, 3), 1, std::make_shared<WeightSet>());
    if (i == 6) b.add(bits_of(2, 6), 3, two);
    const std::vector<PlannedSlice> plan = b.scheduler.plan();
    ++turns[plan.at(0).sequence->weights.get()];
    b.scheduler.roll_back();
    ASSERT_TRUE(b.step());
  }
  EXPECT_GE(turns[nullptr], 4);
  EXPECT_GE(turns[one.get()], 4);
  EXPECT_GE(turns[two.get()], 3);
  while (b.step()) {
  }
  EXPECT_EQ(first.generation.finish, FinishReason::length);
  EXPECT_EQ(b.finished.size(), b.sequences.size());
}

TEST(Scheduler, PagesOfOneSetOfWeightsServeItsOwnRequestsAlone) {
  Bench b({.page_size = 2, .max_batch_rows = 64, .prefill_chunk = 16}, 64);
  const auto one = std::make_shared<WeightSet>(), two = std::make_shared<WeightSet>();
  b.add(bits_of(9, 6), 1);
  b.add(bits_of(9, 6), 1, one);
  while (b.step()) {
  }
  EXPECT_EQ(b.counters.cache_hit_tokens, 0);
  b.add(bits_of(9, 6), 1, two);
  while (b.step()) {
  }
  EXPECT_EQ(b.counters.cache_hit_tokens, 0);
  b.add(bits_of(9, 6), 1, one);
  while (b.step()) {
  }
  EXPECT_EQ(b.counters.cache_hit_tokens, 4);
  b.scheduler.set_weights(2 * kOldWeights);  // the engine's: those of requests stay
  b.add(bits_of(9, 6), 1, two);
  b.add(bits_of(9, 6), 1);
  while (b.step()) {
  }
  EXPECT_EQ(b.counters.cache_hit_tokens, 8);
}

TEST(Scheduler, AFailedForwardStartsAllOver) {
  Bench b({.page_size = 2, .max_batch_rows = 64, .prefill_chunk = 4}, 16);
  b.add(bits_of(9, 6), 3);
  b.add(bits_of(9, 7), 3);
  EXPECT_TRUE(b.step());
  b.scheduler.plan();
  b.scheduler.roll_back();
  b.check();
  EXPECT_EQ(b.scheduler.prefix_cache().entries(), 0);
  EXPECT_EQ(b.scheduler.waiting().size(), 2u);
  while (b.step()) {
  }
  EXPECT_EQ(b.finished.size(), 2u);
}

// A page that was entered in the prefix cache stays what it is: its beginning is computed again, elsewhere.
TEST(Scheduler, TokensThatAreTakenBackLeaveSharedPagesAlone) {
  Bench b({.page_size = 4, .max_batch_rows = 64, .prefill_chunk = 16}, 64);
  Sequence& s = b.add(bits_of(5, 6), 12);
  while (s.known() < 11) b.step();
  ASSERT_EQ(s.computed, 10);
  ASSERT_EQ(s.chain.pages, 2);
  const std::vector<std::int32_t> pages = s.pages;
  b.truncate(s, 4);  // 10 tokens: the last one was computed, in a page of its own
  EXPECT_EQ(s.computed, 9);
  EXPECT_EQ(s.pages, pages);
  b.truncate(s, 1);  // 7: in the middle of the second page, which the cache holds
  EXPECT_EQ(s.computed, 4);
  EXPECT_EQ(s.chain.pages, 1);
  EXPECT_EQ(s.pages, std::vector<std::int32_t>{pages[0]});
  while (b.step()) {
  }
  b.add(bits_of(5, 6), 12);  // finds what was entered
  while (b.step()) {
  }
  EXPECT_EQ(b.at(0).tokens, b.at(1).tokens);
  EXPECT_EQ(b.counters.cache_hit_tokens, 4);
}

// Random requests of three sets of weights come, are cancelled, are put back, take tokens back, meet new weights: every row reads its own text, everybody ends
// with the text it would have had alone, in bounded time, and every page comes back.
TEST(Scheduler, EveryRequestEndsAsIfAloneAndNoPageIsLost) {
  const bool as_if_alone = rc::check([] {
    EngineOptions options;
    options.page_size = *rc::gen::inRange(1, 6);
    options.max_batch_rows = *rc::gen::inRange(1, 12);
    options.max_sequences = *rc::gen::inRange(1, 6);
    options.prefill_chunk = *rc::gen::inRange(1, 7);
    options.prefix_cache = *rc::gen::arbitrary<bool>();
    options.live_token_seconds = *rc::gen::element(0.0, 1e-3, 1.0);
    constexpr int kLongest = 20;
    const std::int64_t smallest = (kLongest + options.page_size - 1) / options.page_size;
    Bench b(options, *rc::gen::inRange<std::int64_t>(smallest, 3 * smallest + 1));
    b.seconds_of = [](const std::vector<PlannedSlice>& plan) { return 3e-4 * static_cast<double>(1 + plan.size()); };
    const std::vector<std::shared_ptr<const WeightSet>> own{nullptr, std::make_shared<WeightSet>(), std::make_shared<WeightSet>()};
    FairShares shares;
    shares.set_keys({{"heavy", 3}});
    std::vector<std::shared_ptr<ShareAccount>> accounts{nullptr};
    if (*rc::gen::arbitrary<bool>())
      accounts = {shares.account(WorkClass::live, "light"), shares.account(WorkClass::live, "heavy"), shares.account(WorkClass::rollouts, "light")};
    const auto operations = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 100000));
    for (int op : operations) {
      const int value = op / 16;
      switch (op % 16) {
        case 0:
        case 1:
        case 2:
        case 3:
        case 4: {
          const int prompt = 1 + value % (kLongest - 1);
          b.add(bits_of(value % 8, prompt), value % (kLongest - prompt + 1), own[static_cast<std::size_t>(op / 7 % 3)],
                accounts[static_cast<std::size_t>(op / 11) % accounts.size()]);
          break;
        }
        case 5:
          if (!b.scheduler.running().empty()) {
            Sequence& s = *b.scheduler.running()[static_cast<std::size_t>(value) % b.scheduler.running().size()];
            if (value % 2) b.scheduler.preempt(s);
            else b.scheduler.remove(s), s.generation.finish = FinishReason::cancelled;
          }
          break;
        case 8:
          if (!b.scheduler.running().empty()) {
            Sequence& s = *b.scheduler.running()[static_cast<std::size_t>(value) % b.scheduler.running().size()];
            if (const std::int64_t said = s.known() - s.prompt_length; said > 0) b.truncate(s, value / 8 % said, value % 3 > 0);
          }
          break;
        case 6:
          b.scheduler.set_weights(b.version += kOldWeights);
          break;
        case 9:
          if (const auto& account = accounts[static_cast<std::size_t>(value) % accounts.size()]) shares.charge({{account.get(), 1}}, value % 7, 0);
          break;
        case 7:
          b.scheduler.plan();
          b.scheduler.roll_back();
          break;
        default:
          b.step();
      }
      b.check();
    }
    std::int64_t left = 0;
    for (const auto& s : b.sequences)
      if (s->generation.finish == FinishReason::none) left += kLongest + 1;
    // The first in fair order moves on at every turn of its weights, at least by one row, and when it does not it waits for decodes,
    // which end. Another account's may come before it, once. Rollouts beside live work that takes all its time have every eighth step.
    std::int64_t steps = 0;
    const std::int64_t waits = options.live_token_seconds > 0 ? LiveRoom::kWaits : 1;
    while (b.step()) RC_ASSERT(++steps <= waits * 3 * static_cast<std::int64_t>(accounts.size()) * (4 * left + 100));
    for (const auto& s : b.sequences) {
      RC_ASSERT(s->generation.finish != FinishReason::none);
      std::vector<std::int32_t> text(s->tokens.begin(), s->tokens.begin() + s->prompt_length);
      while (text.size() < s->tokens.size()) text.push_back(Bench::next_token(text));
      RC_ASSERT(text == s->tokens || b.led_elsewhere.contains(s->id));
      if (s->generation.finish == FinishReason::length) RC_ASSERT(s->known() - s->prompt_length == s->sampling.max_tokens);
    }
    RC_ASSERT(b.scheduler.pages().free_pages() + b.scheduler.prefix_cache().idle() == b.scheduler.pages().total());
  });
  EXPECT_TRUE(as_if_alone);
}

}  // namespace
}  // namespace lockstep
