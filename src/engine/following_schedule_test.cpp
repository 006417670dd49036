// The scheduler where plans follow each other: what stands in for engine and model lets a plan write and read when it enters, since every stage works on
// plans in their order, and knows its tokens as many turns later as there are stages.
#include <deque>

#include "base/philox.h"
#include "engine/scheduler_test_tools.h"

namespace lockstep {
namespace {

class FollowingBench {
 public:
  FollowingBench(const EngineOptions& options, std::int64_t pages, std::int64_t groups)
      : scheduler(options, pages, counters), page_size_(options.page_size), groups_(groups), written_(static_cast<std::size_t>(pages * options.page_size)) {
    scheduler.set_weights(kOldWeights);
  }
  Sequence& add(std::vector<std::int32_t> prompt, std::int32_t max_tokens, std::shared_ptr<const WeightSet> weights = nullptr,
                std::shared_ptr<ShareAccount> account = nullptr) {
    Sequence& s = *sequences.emplace_back(std::make_unique<Sequence>());
    s.id = sequences.size();
    s.weights = std::move(weights);
    s.account = std::move(account);
    s.tokens = std::move(prompt);
    s.prompt_length = s.known();
    s.sampling.max_tokens = max_tokens;
    scheduler.add(s);
    return s;
  }
  // As Engine::step(). False: nothing is left to do.
  bool turn() {
    if (scheduler.idle()) return false;
    if (under_way.empty() || !scheduler.needs_all()) enter();
    for (UnderWay& one : under_way) ++one.turns;
    if (!under_way.empty() && under_way.front().turns == groups_) leave();
    return true;
  }

  struct UnderWay {
    std::vector<PlannedSlice> plan;
    std::int64_t turns = 0;
  };
  EngineCounters counters;
  Scheduler scheduler;
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::deque<UnderWay> under_way;
  std::size_t most_under_way = 0, finished = 0;

 private:
  void enter() {
    const std::vector<PlannedSlice> plan = scheduler.plan(groups_);
    if (plan.empty() && under_way.empty()) throw Error(ErrorCode::internal, "nothing planned");
    if (plan.empty()) return;
    scheduler.observe(1e-3);
    for (const PlannedSlice& p : plan) {
      Sequence& s = *p.sequence;
      EXPECT_FALSE(s.under_way);
      EXPECT_EQ(p.begin, s.computed);
      s.under_way = true;
      for (std::int64_t at = p.begin; at < p.begin + p.count; ++at) written_[slot(s, at)] = text(s, at);
    }
    for (const PlannedSlice& p : plan)
      for (std::int64_t at = 0; at < p.begin + p.count; ++at) EXPECT_EQ(written_[slot(*p.sequence, at)], text(*p.sequence, at)) << "a row reads another text";
    under_way.push_back({plan});
    most_under_way = std::max(most_under_way, under_way.size());
  }
  void leave() {
    const std::vector<PlannedSlice> plan = std::move(under_way.front().plan);
    under_way.pop_front();
    for (const PlannedSlice& p : plan) p.sequence->under_way = false;
    for (const PlannedSlice& p : plan) {
      Sequence& s = *p.sequence;
      scheduler.commit(p);
      if (!p.last) continue;
      if (s.known() - s.prompt_length < s.sampling.max_tokens) s.tokens.push_back(SchedulerBench::next_token(s.tokens));
      if (s.known() - s.prompt_length < s.sampling.max_tokens) continue;
      scheduler.remove(s);
      ++finished;
    }
  }
  std::size_t slot(const Sequence& s, std::int64_t at) const {
    return static_cast<std::size_t>(s.pages[static_cast<std::size_t>(at / page_size_)] * page_size_ + at % page_size_);
  }
  static std::vector<std::int32_t> text(const Sequence& s, std::int64_t at) {
    std::vector<std::int32_t> text{s.weights ? static_cast<std::int32_t>(s.weights->identity) : 0};
    text.insert(text.end(), s.tokens.begin(), s.tokens.begin() + at + 1);
    return text;
  }

  const std::int64_t page_size_, groups_;
  std::vector<std::vector<std::int32_t>> written_;  // by slot
};

TEST(FollowingSchedule, APlanLeavesSequencesForTheNext) {
  FollowingBench b({.page_size = 4, .max_batch_rows = 64}, 40, 2);
  for (int i = 0; i < 5; ++i) b.add(bits_of(i, 3), 4);
  ASSERT_TRUE(b.turn());
  ASSERT_EQ(b.under_way.size(), 1u);
  EXPECT_EQ(b.under_way[0].plan.size(), 3u);
  ASSERT_TRUE(b.turn());  // the others enter, and the first ones have come through
  ASSERT_EQ(b.under_way.size(), 1u);
  EXPECT_EQ(b.under_way[0].plan.size(), 2u);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(b.sequences[static_cast<std::size_t>(3 + i)]->under_way);
  ASSERT_TRUE(b.turn());
  EXPECT_EQ(b.under_way[0].plan.size(), 3u);
  while (b.turn()) {
  }
  EXPECT_EQ(b.finished, 5u);
}

// Who needs a page of one that is under way waits until none is; then the youngest is put back, as in one plan after another.
TEST(FollowingSchedule, NobodyIsPutBackWhileOthersAreUnderWay) {
  FollowingBench b({.page_size = 4, .max_batch_rows = 64, .prefix_cache = false}, 2, 2);
  Sequence& first = b.add(bits_of(1, 3), 4);
  Sequence& second = b.add(bits_of(2, 3), 4);
  while (!b.scheduler.needs_all()) ASSERT_TRUE(b.turn());
  EXPECT_EQ(b.counters.preemptions, 0);
  EXPECT_EQ(b.under_way.size(), 0u);  // the turn that found no page let the last one through
  EXPECT_TRUE(first.running && second.running);
  ASSERT_TRUE(b.turn());
  EXPECT_EQ(b.counters.preemptions, 1);
  EXPECT_TRUE(first.running && !second.running);
  while (b.turn()) {
  }
  EXPECT_EQ(b.finished, 2u);
}

TEST(FollowingSchedule, EverybodyFinishesAsIfAlone) {
  std::int64_t preemptions = 0, hits = 0;
  std::size_t most = 0;
  for (std::uint64_t seed = 0; seed < 80; ++seed) {
    SCOPED_TRACE(seed);
    RandomSequence draws(seed, RandomStream::fuzz);
    const auto between = [&](std::int64_t low, std::int64_t high) { return low + draws.below(static_cast<std::uint32_t>(high - low + 1)); };
    EngineOptions options;
    options.page_size = between(1, 5);
    options.max_batch_rows = between(1, 12);
    options.max_sequences = between(1, 6);
    options.prefill_chunk = between(1, 6);
    options.prefix_cache = seed % 4 != 0;
    constexpr std::int64_t kLongest = 20;
    const std::int64_t smallest = (kLongest + options.page_size - 1) / options.page_size;
    FollowingBench b(options, between(smallest, 3 * smallest), between(2, 3));
    const std::vector<std::shared_ptr<const WeightSet>> own{nullptr, std::make_shared<WeightSet>()};
    FairShares shares;
    std::vector<std::shared_ptr<ShareAccount>> accounts{nullptr};
    if (seed % 2) accounts = {shares.account(WorkClass::live, "a"), shares.account(WorkClass::live, "b"), shares.account(WorkClass::rollouts, "a")};
    for (int i = 0; i < 60; ++i) {
      if (b.sequences.size() < 20 && draws.below(3) == 0) {
        const std::int64_t prompt = between(1, kLongest - 1);
        b.add(bits_of(static_cast<int>(draws.below(4)), static_cast<int>(prompt)), static_cast<std::int32_t>(between(0, kLongest - prompt)),
              own[draws.below(2)], accounts[draws.below(static_cast<std::uint32_t>(accounts.size()))]);
      }
      b.turn();
    }
    int left = 4000;
    while (left > 0 && b.turn()) --left;
    EXPECT_GT(left, 0) << "it goes on for ever";
    EXPECT_EQ(b.finished, b.sequences.size());
    EXPECT_TRUE(b.under_way.empty());
    for (const auto& s : b.sequences) {
      std::vector<std::int32_t> alone(s->tokens.begin(), s->tokens.begin() + s->prompt_length);
      while (alone.size() < s->tokens.size()) alone.push_back(SchedulerBench::next_token(alone));
      EXPECT_EQ(s->tokens, alone);
    }
    EXPECT_EQ(b.scheduler.pages().free_pages() + b.scheduler.prefix_cache().idle(), b.scheduler.pages().total());
    preemptions += b.counters.preemptions;
    hits += b.counters.cache_hit_tokens;
    most = std::max(most, b.most_under_way);
  }
  EXPECT_GT(preemptions, 0);
  EXPECT_GT(hits, 0);
  EXPECT_EQ(most, 3u);
}

}  // namespace
}  // namespace lockstep
