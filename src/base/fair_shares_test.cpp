#include "base/fair_shares.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>
#include <random>

#include "base/error.h"

namespace lockstep {
namespace {

TEST(FairShares, OneThatIsAloneHasEverything) {
  FairShares shares;
  const auto ann = shares.account(WorkClass::training, "ann");
  EXPECT_EQ(shares.next(0), nullptr);
  shares.arrive(*ann, 0);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(shares.next(i), ann.get());
    shares.charge({{ann.get(), 1}}, 1, i + 1);
  }
  shares.leave(*ann);
  EXPECT_TRUE(shares.idle());
}

// Live work that was alone is beyond its share, so it is shared from the first piece on; a little of it, now and then, goes first.
TEST(FairShares, LiveGoesFirstWithinItsShareAlone) {
  FairShares shares;
  const auto ann = shares.account(WorkClass::live, "ann"), bob = shares.account(WorkClass::training, "bob");
  double now = 0;
  const auto run = [&](double seconds) {
    ShareAccount* one = shares.next(now);
    shares.charge({{one, 1}}, seconds, now += seconds);
    return one;
  };
  shares.arrive(*ann, now);
  for (int i = 0; i < 100; ++i) run(0.05);
  shares.arrive(*bob, now);
  int of_bob = 0;
  for (int i = 0; i < 80; ++i) of_bob += run(0.05) == bob.get();
  EXPECT_NEAR(of_bob, 20, 1);  // 20 of 60 + 20
  shares.leave(*ann);
  for (int i = 0; i < 40; ++i) run(0.05);
  shares.arrive(*ann, now);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(run(0.01), ann.get()) << i;
}

// Inside a piece that gives way live work is asked for beside the class that runs, not beside others, which wait for its end.
TEST(FairShares, LiveHasItsShareInsideALongPiece) {
  FairShares shares;
  const auto live = shares.account(WorkClass::live, "a"), rollouts = shares.account(WorkClass::rollouts, "b"),
             training = shares.account(WorkClass::training, "c");
  EXPECT_EQ(shares.next_live(nullptr, 0), nullptr);
  shares.arrive(*live, 0);
  EXPECT_EQ(shares.next_live(nullptr, 0), live.get());  // within its share it goes first
  double now = 0;
  for (int i = 0; i < 200; ++i) shares.charge({{live.get(), 1}}, 0.01, now += 0.01);
  shares.arrive(*training, now);
  shares.arrive(*rollouts, now);
  double had = 0;
  for (int i = 0; i < 1000; ++i) {
    shares.charge({{training.get(), 1}}, 0.005, now += 0.005);
    EXPECT_EQ(shares.next_live(nullptr, now), nullptr) << i;
    while (shares.next_live(training.get(), now)) shares.charge({{live.get(), 1}}, 0.01, now += 0.01), had += 0.01;
  }
  EXPECT_NEAR(had, 15, 0.1);  // 60 beside 20, of training's five seconds
}

TEST(FairShares, WhoComesBackHasNoCreditAndNoDebt) {
  FairShares shares;
  shares.set_keys({{"ann", 1}, {"bob", 3}});
  const auto ann = shares.account(WorkClass::rollouts, "ann"), bob = shares.account(WorkClass::rollouts, "bob");
  double now = 0;
  const auto pieces = [&](int count) {
    int of_ann = 0;
    for (int i = 0; i < count; ++i) {
      ShareAccount* one = shares.next(now);
      shares.charge({{one, 1}}, 0.01, now += 0.01);
      of_ann += one == ann.get();
    }
    return of_ann;
  };
  shares.arrive(*ann, now);
  pieces(1000);  // alone: not held against it
  shares.arrive(*bob, now);
  EXPECT_NEAR(pieces(400), 100, 1);
  shares.leave(*bob);
  pieces(1000);
  shares.arrive(*bob, now);  // has missed ten seconds: no credit
  EXPECT_NEAR(pieces(400), 100, 1);
}

// A live row in each of the engine's long steps costs hardly a token of them: training has its share nevertheless.
TEST(FairShares, AStepOfTwoClassesIsPaidByBoth) {
  FairShares shares;
  const auto live = shares.account(WorkClass::live, "a"), rollouts = shares.account(WorkClass::rollouts, "b"),
             training = shares.account(WorkClass::training, "c");
  for (const auto& one : {live, rollouts, training}) shares.arrive(*one, 0);
  double now = 0, trained = 0;
  while (now < 100) {
    if (shares.next(now) == training.get()) {
      trained += 0.05;
      shares.charge({{training.get(), 1}}, 0.05, now += 0.05);
    } else {
      shares.charge({{live.get(), 1}, {rollouts.get(), 599}}, 0.1, now += 0.1);
    }
  }
  EXPECT_NEAR(trained, 20, 0.2);
  const auto used = shares.used();
  ASSERT_EQ(used.size(), 3u);
  EXPECT_NEAR(used[0].seconds, 80.0 / 600, 0.01);
  EXPECT_NEAR(used[1].seconds, 80.0 * 599 / 600, 0.3);
  EXPECT_EQ(used[0].key, "(no name)");
}

TEST(FairShares, KeysThatAreMadeUpAreForgotten) {
  FairShares shares;
  const auto kept = shares.account(WorkClass::live, "kept");
  shares.arrive(*kept, 0);
  for (int i = 0; i < 20000; ++i) {
    const auto one = shares.account(WorkClass::live, std::to_string(i));
    shares.arrive(*one, i);
    shares.charge({{one.get(), 1}}, 0.1, i + 0.1);
    shares.leave(*one);
  }
  EXPECT_EQ(shares.account(WorkClass::live, "kept"), kept);
  EXPECT_EQ(shares.account(WorkClass::live, "0")->virtual_time(), 0);
  EXPECT_EQ(shares.used().size(), 1u);
}

TEST(FairShares, SharesAreReadAndRefused) {
  EXPECT_EQ(parse_class_shares("live=60,rollouts=20,training=20").percent, ClassShares().percent);
  EXPECT_EQ(parse_class_shares("training=97,live=1,rollouts=2").of(WorkClass::training), 0.97);
  for (const char* wrong :
       {"", "live=60", "live=60,rollouts=20,training=21", "live=60,live=20,training=20", "live=0,rollouts=50,training=50", "live=60,rollouts=20,train=20",
        "live=60,rollouts=20,training=20x", "live=60.5,rollouts=20,training=19.5", "live=-1,rollouts=1,training=100"})
    EXPECT_THROW(parse_class_shares(wrong), Error) << wrong;
}

// --- the policy in virtual time, beside two that must fail

class Policy {
 public:
  virtual ~Policy() = default;
  virtual void arrive(std::size_t key, double now) = 0;
  virtual void leave(std::size_t key) = 0;
  virtual std::optional<std::size_t> next(double now) = 0;
  virtual void charge(std::size_t key, double seconds, double now) = 0;
};

struct Key {
  WorkClass work;
  double weight, longest;  // of its pieces
  bool endless;            // once it has begun
  double wakes = 0;
  int left = 0;  // pieces
};
struct World {
  ClassShares shares;
  std::vector<Key> keys;
  std::uint64_t seed;
};

class Fair : public Policy {
 public:
  explicit Fair(const World& world) : shares_(world.shares) {
    std::map<std::string, double> weights;
    for (std::size_t i = 0; i < world.keys.size(); ++i) weights[std::to_string(i)] = world.keys[i].weight;
    shares_.set_keys(weights);
    for (std::size_t i = 0; i < world.keys.size(); ++i) accounts_.push_back(shares_.account(world.keys[i].work, std::to_string(i)));
  }
  void arrive(std::size_t key, double now) override { shares_.arrive(*accounts_[key], now); }
  void leave(std::size_t key) override { shares_.leave(*accounts_[key]); }
  std::optional<std::size_t> next(double now) override {
    const ShareAccount* one = shares_.next(now);
    return one ? std::optional(static_cast<std::size_t>(std::stoul(one->key))) : std::nullopt;
  }
  void charge(std::size_t key, double seconds, double now) override { shares_.charge({{accounts_[key].get(), 1}}, seconds, now); }

 private:
  FairShares shares_;
  std::vector<std::shared_ptr<ShareAccount>> accounts_;
};

// What the executor did before: the most urgent class, in it first come, first served.
class Strict : public Policy {
 public:
  explicit Strict(const World& world) : world_(world) {}
  void arrive(std::size_t key, double) override { queues_[static_cast<std::size_t>(world_.keys[key].work)].push_back(key); }
  void leave(std::size_t key) override { std::erase(queues_[static_cast<std::size_t>(world_.keys[key].work)], key); }
  std::optional<std::size_t> next(double) override {
    for (const auto& queue : queues_)
      if (!queue.empty()) return queue.front();
    return std::nullopt;
  }
  void charge(std::size_t, double, double) override {}

 private:
  const World& world_;
  std::array<std::deque<std::size_t>, kWorkClasses> queues_;
};

// The least seconds over weight goes next, and what was left while idle is credit.
class NoLift : public Policy {
 public:
  explicit NoLift(const World& world) : world_(world), times_(world.keys.size()), active_(world.keys.size()) {}
  void arrive(std::size_t key, double) override { active_[key] = true; }
  void leave(std::size_t key) override { active_[key] = false; }
  std::optional<std::size_t> next(double) override {
    std::optional<std::size_t> best;
    const auto rank = [&](std::size_t key) { return std::pair(classes_[static_cast<std::size_t>(world_.keys[key].work)], times_[key]); };
    for (std::size_t i = 0; i < active_.size(); ++i)
      if (active_[i] && (!best || rank(i) < rank(*best))) best = i;
    return best;
  }
  void charge(std::size_t key, double seconds, double) override {
    times_[key] += seconds / world_.keys[key].weight;
    classes_[static_cast<std::size_t>(world_.keys[key].work)] += seconds / world_.shares.of(world_.keys[key].work);
  }

 private:
  const World& world_;
  std::vector<double> times_;
  std::array<double, kWorkClasses> classes_{};
  std::vector<bool> active_;
};

struct Span {
  double begin, end;
};
// What happened: who ran when, and when each key had work.
struct Course {
  std::vector<std::vector<Span>> ran, had_work;  // by key
  bool idled = false, ran_idle = false;
};

constexpr double kCourse = 20, kNever = std::numeric_limits<double>::infinity();

Course run(World world, Policy& policy) {
  std::mt19937_64 random(world.seed);
  const auto uniform = [&](double low, double high) { return std::uniform_real_distribution<double>(low, high)(random); };
  std::vector<Key>& keys = world.keys;
  Course course{std::vector<std::vector<Span>>(keys.size()), std::vector<std::vector<Span>>(keys.size())};
  for (Key& key : keys) key.wakes = uniform(0, 1) < 0.5 ? 0 : uniform(0, 4);
  double now = 0;
  const auto wake = [&](double until) {
    while (true) {
      const auto first = std::min_element(keys.begin(), keys.end(), [](const Key& a, const Key& b) { return a.wakes < b.wakes; });
      if (first->wakes > until) return;
      const auto i = static_cast<std::size_t>(first - keys.begin());
      first->left = first->endless ? std::numeric_limits<int>::max() : 1 + static_cast<int>(uniform(0, 30));
      course.had_work[i].push_back({first->wakes, kCourse});
      policy.arrive(i, first->wakes);
      first->wakes = kNever;
    }
  };
  while (now < kCourse) {
    wake(now);
    const bool any = std::any_of(keys.begin(), keys.end(), [](const Key& key) { return key.left > 0; });
    const std::optional<std::size_t> next = policy.next(now);
    course.idled = course.idled || (any && !next);
    if (!next) {
      now = std::min_element(keys.begin(), keys.end(), [](const Key& a, const Key& b) { return a.wakes < b.wakes; })->wakes;
      continue;
    }
    Key& key = keys[*next];
    course.ran_idle = course.ran_idle || key.left == 0;
    if (course.ran_idle || course.idled) return course;
    const double end = now + uniform(0.1, 1) * key.longest;
    wake(end);
    policy.charge(*next, end - now, end);
    course.ran[*next].push_back({now, end});
    now = end;
    if (--key.left > 0) continue;
    policy.leave(*next);
    course.had_work[*next].back().end = now;
    key.wakes = now + (uniform(0, 1) < 0.3 ? 1e-4 : uniform(0, 3));
  }
  return course;
}

double within(const std::vector<Span>& spans, double begin, double end) {
  double sum = 0;
  for (auto it = std::lower_bound(spans.begin(), spans.end(), begin, [](const Span&s, double at) { return s.end < at; }); it != spans.end() && it->begin < end;
       ++it)
    sum += std::max(0.0, std::min(it->end, end) - std::max(it->begin, begin));
  return sum;
}

std::vector<Span> joined(std::vector<Span> spans) {
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
  std::vector<Span> out;
  for (const Span& s : spans) {
    if (!out.empty() && s.begin <= out.back().end) out.back().end = std::max(out.back().end, s.end);
    else out.push_back(s);
  }
  return out;
}

struct Faults {
  bool idle = false, windows = false, pairs = false, waits = false;
  bool any() const { return idle || windows || pairs || waits; }
};

class Judge {
 public:
  Judge(const World& world, const Course& course) : world_(world), course_(course) {
    for (const Key& key : world.keys) {
      double& longest = longest_[static_cast<std::size_t>(key.work)];
      longest = std::max(longest, key.longest);
    }
    // Of its own pieces one may be too late, and of each other class one is not interrupted.
    for (const double longest : longest_) late_ += longest;
  }
  Faults faults() const {
    Faults faults;
    faults.idle = course_.idled || course_.ran_idle;
    for (std::size_t c = 0; c < kWorkClasses; ++c) faults.windows = faults.windows || !has_share(static_cast<WorkClass>(c));
    for (std::size_t i = 0; i < world_.keys.size(); ++i) {
      faults.waits = faults.waits || !is_served(i);
      for (std::size_t j = 0; j < i; ++j) faults.pairs = faults.pairs || !are_even(i, j);
    }
    return faults;
  }

 private:
  // In every two seconds through which the class has work.
  bool has_share(WorkClass work) const {
    constexpr double kWindow = 2;
    const double share = world_.shares.of(work), had_first = work == WorkClass::live ? kWindow * share / 32 : 0;
    std::vector<Span> ran, had_work;
    for (std::size_t i = 0; i < world_.keys.size(); ++i) {
      if (world_.keys[i].work != work) continue;
      ran.insert(ran.end(), course_.ran[i].begin(), course_.ran[i].end());
      had_work.insert(had_work.end(), course_.had_work[i].begin(), course_.had_work[i].end());
    }
    std::sort(ran.begin(), ran.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
    for (const Span& span : joined(had_work)) {
      std::vector<double> begins{span.begin};
      for (const Span& s : ran) begins.push_back(s.end), begins.push_back(s.begin - kWindow);
      for (const double begin : begins)
        if (begin >= span.begin && begin + kWindow <= span.end && within(ran, begin, begin + kWindow) < kWindow * share - late_ - had_first - 1e-9)
          return false;
    }
    return true;
  }
  // While both have work their seconds over their weights differ by a piece of each.
  bool are_even(std::size_t i, std::size_t j) const {
    const Key &a = world_.keys[i], &b = world_.keys[j];
    if (a.work != b.work) return true;
    for (const Span& x : course_.had_work[i])
      for (const Span& y : course_.had_work[j]) {
        const double begin = std::max(x.begin, y.begin), end = std::min(x.end, y.end);
        if (begin >= end) continue;
        std::vector<std::pair<double, double>> changes;  // when, and by how much
        for (const Span& s : course_.ran[i])
          if (s.begin < end && s.end > begin) changes.emplace_back(s.end, (std::min(s.end, end) - std::max(s.begin, begin)) / a.weight);
        for (const Span& s : course_.ran[j])
          if (s.begin < end && s.end > begin) changes.emplace_back(s.end, -(std::min(s.end, end) - std::max(s.begin, begin)) / b.weight);
        std::sort(changes.begin(), changes.end());
        double sum = 0, least = 0, most = 0;
        for (const auto& [when, change] : changes) {
          sum += change;
          least = std::min(least, sum);
          most = std::max(most, sum);
        }
        if (most - least > 2 * std::max(a.longest / a.weight, b.longest / b.weight) + 1e-9) return false;
      }
    return true;
  }
  // Others of its class have, while it waits, two pieces and their weight's part of its own; and the class has its share.
  bool is_served(std::size_t i) const {
    const Key& key = world_.keys[i];
    double before = late_;
    for (const Key& other : world_.keys)
      if (other.work == key.work) before += other.weight * key.longest / key.weight + 2 * other.longest;
    const double longest_wait = before / world_.shares.of(key.work) + 2;
    for (const Span& span : course_.had_work[i]) {
      double since = span.begin;
      for (const Span& s : course_.ran[i]) {
        if (s.end <= span.begin || s.begin >= span.end) continue;
        if (s.begin - since > longest_wait) return false;
        since = s.end;
      }
      if (span.end - since > longest_wait) return false;
    }
    return true;
  }

  const World& world_;
  const Course& course_;
  std::array<double, kWorkClasses> longest_{};
  double late_ = 0;
};

World random_world(std::size_t keys, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  World world{.seed = seed};
  if (pick(0, 1)) {
    world.shares.percent[0] = pick(20, 70);
    world.shares.percent[1] = pick(10, 90 - world.shares.percent[0]);
    world.shares.percent[2] = 100 - world.shares.percent[0] - world.shares.percent[1];
  }
  for (std::size_t i = 0; i < keys; ++i)
    world.keys.push_back(
        {.work = static_cast<WorkClass>(pick(0, 2)), .weight = static_cast<double>(pick(1, 4)), .longest = pick(2, 50) / 1000.0, .endless = pick(0, 2) == 0});
  return world;
}

template <class P>
Faults faults_of(const World& world) {
  P policy(world);
  const Course course = run(world, policy);
  return Judge(world, course).faults();
}

TEST(FairShares, EverybodyHasItsShareWhateverOthersDo) {
  const bool fair = rc::check([] {
    const World world = random_world(*rc::gen::inRange<std::size_t>(2, 51), *rc::gen::arbitrary<std::uint64_t>());
    const Faults faults = faults_of<Fair>(world);
    RC_ASSERT(!faults.idle);
    RC_ASSERT(!faults.windows);
    RC_ASSERT(!faults.pairs);
    RC_ASSERT(!faults.waits);
  });
  EXPECT_TRUE(fair);
}

TEST(FairShares, StrictOrderAndCreditForIdleTimeAreFoundOut) {
  int starved = 0, waited = 0, uneven = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const World world = random_world(20, seed);
    const Faults strict = faults_of<Strict>(world), credit = faults_of<NoLift>(world);
    starved += strict.windows;
    waited += strict.waits;
    uneven += credit.pairs;
    EXPECT_FALSE(strict.idle || credit.idle);
  }
  EXPECT_GE(starved, 10);
  EXPECT_GE(waited, 5);
  EXPECT_GE(uneven, 10);
}

}  // namespace
}  // namespace lockstep
