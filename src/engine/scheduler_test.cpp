#include "engine/scheduler.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/fair_shares.h"

namespace lockstep {
namespace {

constexpr std::uint64_t kOld = std::uint64_t{1} << 40;  // identities of the engine's weights, apart from real ones

// Stands in for engine and model: a page remembers which text was written to each of its positions; "sampling" hashes
// the text.
class Bench {
 public:
  Bench(const EngineOptions& options, std::int64_t pages)
      : options_(options), scheduler(options, pages, counters), written_(static_cast<std::size_t>(pages * options.page_size)) {
    scheduler.set_weights(version);
  }
  Sequence& add(std::vector<std::int32_t> prompt, std::int32_t max_tokens, std::shared_ptr<const WeightSet> weights = nullptr,
                std::shared_ptr<ShareAccount> account = nullptr) {
    auto s = std::make_unique<Sequence>();
    s->weights = std::move(weights);
    s->account = std::move(account);
    s->id = next_id_++;
    s->tokens = std::move(prompt);
    s->prompt_length = s->known();
    s->sampling.max_tokens = max_tokens;
    scheduler.add(*s);
    sequences.push_back(std::move(s));
    return *sequences.back();
  }
  static std::int32_t next_token(const std::vector<std::int32_t>& text) {
    std::uint32_t h = 17;
    for (std::int32_t t : text) h = h * 31 + static_cast<std::uint32_t>(t) + 1;
    return static_cast<std::int32_t>(h >> 3 & 1);
  }
  // One forward. Every row is written first, then every row checks all positions it reads.
  bool step() {
    if (scheduler.idle()) return false;
    const std::vector<PlannedSlice> plan = scheduler.plan();
    if (plan.empty()) throw Error(ErrorCode::internal, "nothing planned");
    std::int64_t rows = 0;
    std::set<const Sequence*> seen;
    std::map<std::int64_t, int> writers;
    for (const PlannedSlice& p : plan) {
      const Sequence& s = *p.sequence;
      EXPECT_EQ(s.weights, plan[0].sequence->weights) << "one forward, two sets of weights";
      EXPECT_TRUE(seen.insert(&s).second) << "planned twice";
      EXPECT_EQ(p.begin, s.computed);
      EXPECT_GT(p.count, 0);
      EXPECT_EQ(p.last, p.begin + p.count == s.known());
      EXPECT_LE(p.count, p.decode ? 1 : options_.prefill_chunk);
      rows += p.count;
      for (std::int64_t at = p.begin; at < p.begin + p.count; ++at) {
        EXPECT_EQ(++writers[slot(s, at)], 1) << "two rows write one position";
        write(s, at);
      }
    }
    EXPECT_LE(rows, options_.max_batch_rows);
    EXPECT_LE(static_cast<std::int64_t>(scheduler.running().size()), options_.max_sequences);
    for (const PlannedSlice& p : plan)
      for (std::int64_t at = 0; at < p.begin + p.count; ++at) EXPECT_TRUE(holds(*p.sequence, at)) << "a row reads another text";
    for (const PlannedSlice& p : plan) {
      Sequence& s = *p.sequence;
      scheduler.commit(p);
      if (!p.last) continue;
      if (s.known() - s.prompt_length < s.sampling.max_tokens) s.tokens.push_back(next_token(s.tokens));
      if (s.known() - s.prompt_length >= s.sampling.max_tokens) {
        scheduler.remove(s);
        finished.push_back(s.id);
        s.generation.finish = FinishReason::length;
      }
    }
    check();
    return true;
  }
  // Takes back what `s` has said beyond its first `said` tokens. `otherwise`: it goes on with another token than it would say.
  void truncate(Sequence& s, std::int64_t said, bool otherwise = false) {
    s.tokens.resize(static_cast<std::size_t>(s.prompt_length + said));
    scheduler.truncate(s);
    EXPECT_LT(s.computed, s.known());
    EXPECT_EQ(static_cast<std::int64_t>(s.pages.size()), (s.computed + options_.page_size - 1) / options_.page_size);
    if (otherwise) {
      s.tokens.push_back(1 - next_token(s.tokens));
      led_elsewhere.insert(s.id);
    }
    check();
  }
  // Every page's users are those who list it, and the prefix cache.
  void check() const {
    std::map<std::int32_t, std::int32_t> users;
    for (const auto& s : sequences)
      for (std::int32_t page : s->pages) ++users[page];
    std::int64_t in_use = 0;
    for (const auto& [page, n] : users) {
      EXPECT_EQ(scheduler.pages().users(page), n + scheduler.prefix_cache().holds(page));
      ++in_use;
    }
    EXPECT_EQ(scheduler.pages().free_pages() + scheduler.prefix_cache().idle() + in_use, scheduler.pages().total());
    EXPECT_TRUE(std::is_sorted(scheduler.running().begin(), scheduler.running().end(), [](auto* a, auto* b) { return a->id < b->id; }));
  }
  Sequence& at(std::size_t i) { return *sequences[i]; }

  EngineCounters counters;

 private:
  EngineOptions options_;

 public:
  Scheduler scheduler;
  std::uint64_t version = kOld;
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<std::uint64_t> finished;
  std::set<std::uint64_t> led_elsewhere;

 private:
  std::int64_t slot(const Sequence& s, std::int64_t at) const {
    return s.pages[static_cast<std::size_t>(at / options_.page_size)] * options_.page_size + at % options_.page_size;
  }
  static std::vector<std::int32_t> text(const Sequence& s, std::int64_t at) {
    std::vector<std::int32_t> text{s.weights ? static_cast<std::int32_t>(s.weights->identity) : 0};
    text.insert(text.end(), s.tokens.begin(), s.tokens.begin() + at + 1);
    return text;
  }
  void write(const Sequence& s, std::int64_t at) { written_[static_cast<std::size_t>(slot(s, at))] = text(s, at); }
  bool holds(const Sequence& s, std::int64_t at) const { return written_[static_cast<std::size_t>(slot(s, at))] == text(s, at); }

  std::vector<std::vector<std::int32_t>> written_;  // by slot
  std::uint64_t next_id_ = 1;
};

std::vector<std::int32_t> bits_of(int value, int length) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(length));
  for (int i = 0; i < length; ++i) tokens[static_cast<std::size_t>(i)] = value >> (i % 16) & 1;
  return tokens;
}

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
  b.scheduler.set_weights(2 * kOld);
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
  b.scheduler.set_weights(2 * kOld);  // the engine's: those of requests stay
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
  EXPECT_EQ(b.scheduler.waiting(), 2);
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
    constexpr int kLongest = 20;
    const std::int64_t smallest = (kLongest + options.page_size - 1) / options.page_size;
    Bench b(options, *rc::gen::inRange<std::int64_t>(smallest, 3 * smallest + 1));
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
          b.scheduler.set_weights(b.version += kOld);
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
    // which end. Another account's may come before it, once.
    std::int64_t steps = 0;
    while (b.step()) RC_ASSERT(++steps <= 3 * static_cast<std::int64_t>(accounts.size()) * (4 * left + 100));
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
