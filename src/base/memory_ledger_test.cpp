#include "base/memory_ledger.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>
#include <thread>

#include "base/error.h"

namespace lockstep {
namespace {

TEST(MemoryLedger, WhatFitsIsHeldUntilItIsReleased) {
  MemoryLedger ledger(100);
  MemoryLedger::Claim a = ledger.claim("models", "me", 60, "model 'a'");
  EXPECT_EQ(ledger.free(), 40);
  EXPECT_FALSE(ledger.try_claim("models", "you", 41));
  {
    const MemoryLedger::Claim b = ledger.claim("turns", "you", 40, "a turn");
    EXPECT_EQ(ledger.free(), 0);
    EXPECT_EQ(ledger.held("models", "me"), 60);
    EXPECT_EQ(ledger.held("models", "you"), 0);
    EXPECT_FALSE(a.try_resize(61));
    EXPECT_EQ(a.bytes(), 60);
    EXPECT_TRUE(a.try_resize(10));
    EXPECT_EQ(ledger.free(), 50);
  }
  EXPECT_EQ(ledger.free(), 90);
  MemoryLedger::Claim moved = std::move(a);
  EXPECT_EQ(ledger.held(), 10);
  moved = ledger.claim("models", "me", 5, "model 'b'");  // the one before goes
  EXPECT_EQ(ledger.held(), 5);
  moved.release();
  moved.release();
  EXPECT_EQ(ledger.held(), 0);
}

TEST(MemoryLedger, ARefusalSaysWhatIsWantedWhatIsFreeWhoHoldsTheRestAndWhatFreesSome) {
  MemoryLedger ledger(std::int64_t{100} << 20);
  ledger.describe("models", "unload some");
  ledger.describe("samplers", "never told: they hold nothing");
  const MemoryLedger::Claim base = ledger.claim("base", {}, std::int64_t{30} << 20, "the base"),
                            model = ledger.claim("models", "me", std::int64_t{50} << 20, "model 'a'");
  try {
    ledger.claim("models", "me", std::int64_t{25} << 20, "model 'b'");
    FAIL() << "it does not fit";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::resource_exhausted);
    EXPECT_EQ(e.message(),
              "model 'b' takes 25.0 MB of memory, 20.0 MB of 100.0 MB are free (--memory-megabytes); held: base 30.0 MB, models 50.0 MB; what frees some: "
              "models: unload some");
  }
  EXPECT_EQ(ledger.held(), std::int64_t{80} << 20);
}

TEST(MemoryLedger, AClaimOutlivesItsLedger) {
  MemoryLedger::Claim claim;
  {
    MemoryLedger ledger(10);
    claim = ledger.claim("a", "b", 7, "it");
  }
  EXPECT_FALSE(claim.try_resize(11));
  EXPECT_TRUE(claim.try_resize(10));
}

// Whatever is claimed, resized and released, in whatever order: the books are the sum of what is held, and never more than the total.
TEST(MemoryLedger, TheBooksAreTheSumOfTheClaims) {
  EXPECT_TRUE(rc::check([] {
    const auto total = *rc::gen::inRange<std::int64_t>(0, 1000);
    MemoryLedger ledger(total);
    const std::vector<std::string> names = {"a", "b", "c"};
    std::vector<std::pair<std::string, MemoryLedger::Claim>> held;
    const auto steps = *rc::gen::container<std::vector<std::tuple<int, std::size_t, std::int64_t>>>(
        rc::gen::tuple(rc::gen::inRange(0, 4), rc::gen::inRange<std::size_t>(0, 1000), rc::gen::inRange<std::int64_t>(0, 600)));
    for (const auto& [what, which, bytes] : steps) {
      const std::int64_t before = ledger.held();
      if (what == 0 || held.empty()) {
        const std::string& name = names[which % names.size()];
        auto claim = ledger.try_claim(name, name, bytes);
        RC_ASSERT(claim.has_value() == (before + bytes <= total));
        if (claim) held.emplace_back(name, std::move(*claim));
      } else if (what == 1) {
        MemoryLedger::Claim& claim = held[which % held.size()].second;
        const std::int64_t more = bytes - claim.bytes();
        RC_ASSERT(claim.try_resize(bytes) == (more <= 0 || before + more <= total));
      } else {
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(which % held.size()));
      }
      std::int64_t sum = 0;
      std::map<std::string, std::int64_t> by_name;
      for (const auto& [name, claim] : held) sum += claim.bytes(), by_name[name] += claim.bytes();
      RC_ASSERT(ledger.held() == sum && sum <= total);
      for (const std::string& name : names) RC_ASSERT(ledger.held(name) == by_name[name] && ledger.held(name, name) == by_name[name]);
    }
  }));
}

TEST(MemoryLedger, ManyThreadsNeverHoldMoreThanThereIs) {
  MemoryLedger ledger(10);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&ledger, t] {
      for (int i = 0; i < 2000; ++i) {
        auto claim = ledger.try_claim("a", std::to_string(t), 4);
        ASSERT_LE(ledger.held(), 10);
        if (claim && claim->try_resize(6)) {
          ASSERT_LE(ledger.held(), 10);
        }
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(ledger.held(), 0);
}

}  // namespace
}  // namespace lockstep
