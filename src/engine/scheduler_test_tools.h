// A scheduler with what stands in for engine and model, whose steps may take a time that is computed. Tests only.
//   SchedulerBench b({.page_size = 4}, 64); Sequence& s = b.add(bits_of(1, 3), 8); while (b.step()) {}
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "base/error.h"
#include "base/fair_shares.h"
#include "engine/scheduler.h"

namespace lockstep {

inline constexpr std::uint64_t kOldWeights = std::uint64_t{1} << 40;  // identities of the engine's weights, apart from real ones

// Stands in for engine and model: a page remembers which text was written to each of its positions; "sampling" hashes
// the text.
class SchedulerBench {
 public:
  SchedulerBench(const EngineOptions& options, std::int64_t pages)
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
    if (seconds_of) {
      const double seconds = seconds_of(plan);
      now += seconds;
      scheduler.observe(seconds);
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
  std::function<double(const std::vector<PlannedSlice>&)> seconds_of;  // null: steps take no time
  double now = 0;

 private:
  EngineOptions options_;

 public:
  Scheduler scheduler;
  std::uint64_t version = kOldWeights;
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

inline std::vector<std::int32_t> bits_of(int value, int length) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(length));
  for (int i = 0; i < length; ++i) tokens[static_cast<std::size_t>(i)] = value >> (i % 16) & 1;
  return tokens;
}

}  // namespace lockstep
