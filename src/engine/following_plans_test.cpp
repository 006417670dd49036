// Plans that follow each other through the stages of a pipeline: stages work at the same time, and answers have the bits of one rank, whatever happens
// while plans are under way.
#include <algorithm>
#include <chrono>
#include <thread>

#include "base/fair_shares.h"
#include "engine/drafts_test_tools.h"
#include "engine/step_follower.h"
#include "parallel/memory_wire_test_tools.h"

namespace lockstep {
namespace {

using Bits = std::vector<std::vector<std::uint32_t>>;
const std::vector<RankLayout> kStages = {{1, 1, 1, 2}, {1, 1, 1, 3}, {2, 1, 1, 2}};

EngineOptions wide(const RankLayout& ranks = {}) { return {.page_size = 4, .cache_pages = 400, .max_batch_rows = 64, .ranks = ranks}; }
EngineOptions tight(const RankLayout& ranks) { return {.page_size = 4, .cache_pages = 16, .max_batch_rows = 32, .prefill_chunk = 5, .ranks = ranks}; }

// Requests of all kinds, and what one rank answers.
struct Rich {
  Plant plant{"sharing", "cpu-f32", {.threads = 1}};
  std::int64_t vocabulary = plant.runtime.model->facts().vocabulary;
  std::vector<Request> requests = rich_requests(10, 11, vocabulary);
  Bits want;
  Rich() {
    Engine one(plant.runtime, plant.weights, wide());
    want = bits_of(one.generate(again()));
  }
  std::vector<Request> again() const { return constrained(requests, vocabulary); }
};

void expect_no_page_held(const Engine& engine) {
  EXPECT_EQ(engine.scheduler().pages().free_pages() + engine.scheduler().prefix_cache().idle(), engine.scheduler().pages().total());
}

TEST(FollowingPlans, HaveTheBitsOfOneRank) {
  const Rich rich;
  Plant plant("sharing", "cpu-f32", {.threads = 1});
  std::int64_t preemptions = 0;
  for (const RankLayout& ranks : kStages)
    for (const EngineOptions& options : {wide(ranks), tight(ranks)}) {
      SCOPED_TRACE(fmt::format("{}, {} pages", ranks.text(), options.cache_pages));
      Engine engine(plant.runtime, plant.weights, options);
      EXPECT_EQ(bits_of(engine.generate(rich.again())), rich.want);
      EXPECT_GT(engine.counters().following_forwards, 0);
      EXPECT_EQ(engine.counters().work.fault(), "");
      preemptions += engine.counters().preemptions;
      expect_no_page_held(engine);
    }
  EXPECT_GT(preemptions, 0);
}

// Right, wrong and random guesses, and those of sources; by rejection sampling, too, where answers depend on the guesses, and on nothing else.
TEST(FollowingPlans, GuessesAheadChangeNoBit) {
  const Rich rich;
  Plant plant("sharing", "cpu-f32", {.threads = 1});
  Engine plain(plant.runtime, plant.weights, wide());
  const std::vector<Generation> said = plain.generate(rich.again());
  const auto guessing = [&](std::vector<Request> requests, Guesses guesses) {
    for (std::size_t i = 0; i < requests.size(); ++i) requests[i] = guessed(requests[i], guesses, said[i], rich.vocabulary, 4, i + 1);
    return requests;
  };
  std::vector<Request> rejecting = guessing(rich.requests, Guesses::random);
  for (Request& r : rejecting) r.drafts->acceptance = DraftOptions::Acceptance::rejection;
  const Bits rejected = bits_of(plain.generate(rejecting));
  for (const RankLayout& ranks : kStages) {
    SCOPED_TRACE(ranks.text());
    Engine engine(plant.runtime, plant.weights, wide(ranks));
    for (const Guesses guesses : {Guesses::perfect, Guesses::random, Guesses::all}) {
      const std::int64_t before = engine.counters().following_forwards;
      EXPECT_EQ(bits_of(engine.generate(guessing(rich.again(), guesses))), rich.want);
      EXPECT_GT(engine.counters().following_forwards, before);
    }
    EXPECT_GT(engine.counters().drafts.accepted, 20);
    EXPECT_GT(engine.counters().drafts.tokens, engine.counters().drafts.accepted);
    EXPECT_EQ(bits_of(engine.generate(rejecting)), rejected);
    expect_no_page_held(engine);
  }
}

// One plan at a time where that is asked for, and where the time of a step is bounded.
TEST(FollowingPlans, OneAtATimeHasTheSameBits) {
  const Rich rich;
  Plant plant("sharing", "cpu-f32", {.threads = 1});
  EngineOptions options = wide(kStages[0]);
  options.plans_follow = false;
  Engine asked(plant.runtime, plant.weights, options);
  options = wide(kStages[0]);
  options.live_token_seconds = 1;
  Engine bounded(plant.runtime, plant.weights, options);
  for (Engine* engine : {&asked, &bounded}) {
    EXPECT_EQ(bits_of(engine->generate(rich.again())), rich.want);
    EXPECT_EQ(engine->counters().following_forwards, 0);
  }
}

// Stops the first stage in the middle of a forward until the second one has begun one, or the time is over.
class FirstStageWaits final : public OperationObserver {
 public:
  explicit FirstStageWaits(std::chrono::milliseconds most) : most_(most) {}
  void begin_forward(Backend&, const Batch&) override {}
  void operation(const Operation&) override {
    if (!steps_) return;
    const auto until = std::chrono::steady_clock::now() + most_;
    while (steps_->forwards_begun(1) == before_ && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    beside_ += steps_->forwards_begun(1) > before_;
    steps_ = nullptr;  // once a step
  }
  void watch(const RankSteps& steps) {
    before_ = steps.forwards_begun(1);
    steps_ = &steps;
  }
  std::int64_t beside() const { return beside_; }

 private:
  const std::chrono::milliseconds most_;
  const RankSteps* steps_ = nullptr;
  std::int64_t before_ = 0, beside_ = 0;
};

// In how many of five steps, behind the first one, the second stage began a forward in the middle of the first one's.
std::int64_t steps_beside(Plant& plant, std::int32_t requests, bool follow, std::chrono::milliseconds most) {
  FirstStageWaits observer(most);
  EngineOptions options = wide(kStages[0]);
  options.plans_follow = follow;
  Engine engine(plant.runtime, plant.weights, options);
  for (std::int32_t i = 0; i < requests; ++i) engine.submit({.prompt = {1 + i, 5, 7}, .sampling = {.temperature = 0, .max_tokens = 12}});
  engine.step();
  plant.runtime.observer = &observer;
  for (int step = 0; step < 5; ++step) {
    observer.watch(engine.rank_steps());
    engine.step();
  }
  plant.runtime.observer = nullptr;
  engine.run_until_idle();
  return observer.beside();
}

TEST(FollowingPlans, StagesWorkAtTheSameTime) {
  using std::chrono::milliseconds;
  Plant plant("sharing", "cpu-f32", {.threads = 1});
  EXPECT_EQ(steps_beside(plant, 2, true, milliseconds(20000)), 5);
  // The controls: a sequence alone has nothing beside it, and plans that do not follow each other have not.
  EXPECT_EQ(steps_beside(plant, 1, true, milliseconds(0)), 0);
  EXPECT_EQ(steps_beside(plant, 2, false, milliseconds(0)), 0);
}

TEST(FollowingPlans, TextsAreCutBackAndPreemptedWhileTheyAreUnderWay) {
  const Rich rich;
  Plant plant("sharing", "cpu-f32", {.threads = 1});
  std::int64_t under_way = 0, cut = 0;
  Engine plain(plant.runtime, plant.weights, wide());
  const std::vector<Generation> bare = plain.generate(rich.requests);
  std::vector<Request> guessing = rich.requests;
  for (std::size_t i = 0; i < guessing.size(); ++i) guessing[i] = guessed(guessing[i], Guesses::random, bare[i], rich.vocabulary, 4, i + 1);
  for (const RankLayout& ranks : kStages)
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      SCOPED_TRACE(fmt::format("{}, {}", ranks.text(), seed));
      RandomSequence draws(seed, RandomStream::fuzz);
      Engine engine(plant.runtime, plant.weights, seed % 2 ? tight(ranks) : wide(ranks));
      Bits got(rich.requests.size());
      std::int64_t told = 0;
      const std::vector<Request> run = seed == 2 ? guessing : rich.again();
      for (std::size_t i = 0; i < run.size(); ++i)
        engine.submit(
            run[i], [&told](std::uint64_t, const GeneratedToken&) { ++told; }, [&got, i](Generation&& g) { got[i] = bits_of(g); });
      for (int left = 30; engine.step();) {
        const std::vector<Sequence*> running = engine.scheduler().running();
        if (running.empty() || left == 0 || draws.below(2)) continue;
        const Sequence& s = *running[draws.below(static_cast<std::uint32_t>(running.size()))];
        const auto said = static_cast<std::uint32_t>(s.generation.tokens.size());
        under_way += s.under_way;
        --left;
        if (said == 0 || draws.below(3) == 0) {
          engine.preempt(s.id);
          continue;
        }
        const std::uint32_t kept = draws.below(said);
        engine.truncate(s.id, kept);
        EXPECT_EQ(s.generation.tokens.size(), kept);
        cut += said - kept;
      }
      EXPECT_EQ(got, seed == 2 ? bits_of(bare) : rich.want);
      EXPECT_EQ(told, engine.counters().sampled_tokens);  // cut back and told again
      expect_no_page_held(engine);
    }
  EXPECT_GT(under_way, 20);
  EXPECT_GT(cut, 20);
}

// A plan that comes through between two steps has had rows of its account as in a step, and they are told once.
TEST(FollowingPlans, RowsBetweenStepsAreToldToo) {
  Plant plant("sharing", "cpu-f32", {.threads = 1});
  FairShares shares;
  Engine engine(plant.runtime, plant.weights, wide(kStages[0]));
  for (const char* const key : {"ann", "bob"})
    engine.submit({.prompt = {1, 5, 7}, .sampling = {.temperature = 0, .max_tokens = 12}, .account = shares.account(WorkClass::live, key)});
  engine.step(), engine.step();
  const std::vector<Sequence*>& running = engine.scheduler().running();
  const auto found = std::find_if(running.begin(), running.end(), [](const Sequence* s) { return s->under_way; });
  ASSERT_NE(found, running.end());
  const std::shared_ptr<ShareAccount> whose = (*found)->account;
  std::int64_t before = 0;
  for (const AccountRows& one : engine.take_rows()) before += one.account == whose ? one.rows : 0;
  EXPECT_EQ(before, 3);  // its prompt, in the first of two stages
  engine.cancel((*found)->id);
  engine.step();
  std::int64_t own = 0, others = 0;
  for (const AccountRows& one : engine.take_rows()) (one.account == whose ? own : others) += one.rows;
  EXPECT_EQ(own, 3);  // in the second
  EXPECT_EQ(others, 1);
  EXPECT_TRUE(engine.take_rows().empty());
}

TEST(FollowingPlans, OfWhatIsCancelledNothingMoreIsTold) {
  const Rich rich;
  Plant plant("sharing", "cpu-f32", {.threads = 1});
  for (const RankLayout& ranks : kStages) {
    SCOPED_TRACE(ranks.text());
    Engine engine(plant.runtime, plant.weights, wide(ranks));
    const std::vector<Request> run = rich.again();
    std::vector<std::uint64_t> ids;
    std::vector<std::size_t> told(run.size());
    std::vector<int> done(run.size());
    std::size_t cancelled = 0, under_way = 0;
    for (std::size_t i = 0; i < run.size(); ++i)
      ids.push_back(engine.submit(
          run[i],
          [&, i](std::uint64_t, const GeneratedToken&) {
            EXPECT_EQ(done[i], 0);
            if (++told[i] == 2 && i == 1) engine.cancel(ids[2]);  // a callback may
          },
          [&, i](Generation&& g) {
            ++done[i];
            if (g.finish == FinishReason::cancelled) {
              ++cancelled;
              EXPECT_EQ(g.tokens.size(), told[i]);
            } else {
              EXPECT_EQ(bits_of(g), rich.want[i]) << i;
            }
          }));
    for (int step = 0; engine.step(); ++step) {
      if (step % 4 != 2 || under_way == 3) continue;
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const std::vector<Sequence*>& running = engine.scheduler().running();
        const auto found = std::find_if(running.begin(), running.end(), [&](const Sequence* s) { return s->id == ids[i] && s->under_way; });
        if (found == running.end()) continue;
        ++under_way;
        engine.cancel(ids[i]);
        EXPECT_EQ(done[i], 1);
        break;
      }
    }
    EXPECT_EQ(under_way, 3u);
    EXPECT_GE(cancelled, under_way);
    EXPECT_EQ(done, std::vector<int>(run.size(), 1));
    EXPECT_TRUE(engine.idle());
    expect_no_page_held(engine);
  }
}

TEST(FollowingPlans, RequestsUnderWayFinishOnTheirWeights) {
  Plant plant("sharing", "cpu-f32", {.threads = 1}), other("sharing", "cpu-f32", {.threads = 1}, 128, 8);
  const auto next = make_weight_set(plant.runtime.backend, plant.runtime.model->manifest(), other.images, plant.runtime.profile, 2);
  const std::vector<Request> requests = random_requests(9, 5, plant.runtime.model->facts().vocabulary);
  Engine old_ones(plant.runtime, plant.weights, wide()), new_ones(plant.runtime, next, wide());
  const Bits under_old = bits_of(old_ones.generate(requests)), under_new = bits_of(new_ones.generate(requests));
  for (const RankLayout& ranks : kStages) {
    SCOPED_TRACE(ranks.text());
    EngineOptions options = wide(ranks);
    options.max_sequences = 4;
    Engine engine(plant.runtime, plant.weights, options);
    std::vector<Generation> got(requests.size());
    for (std::size_t i = 0; i < requests.size(); ++i) engine.submit(requests[i], {}, [&got, i](Generation&& g) { got[i] = std::move(g); });
    for (int step = 0; step < 5; ++step) engine.step();
    const std::vector<Sequence*>& running = engine.scheduler().running();
    EXPECT_TRUE(std::any_of(running.begin(), running.end(), [](const Sequence* s) { return s->under_way; }));
    engine.set_weights(next, InFlight::finish);
    EXPECT_TRUE(std::none_of(running.begin(), running.end(), [](const Sequence* s) { return s->under_way; }));
    engine.run_until_idle();
    std::size_t old = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_FALSE(got[i].tokens.empty());
      const bool first = got[i].tokens.front().weights_version == 1;
      old += first;
      EXPECT_EQ(bits_of(got[i]), first ? under_old[i] : under_new[i]) << i;
    }
    EXPECT_GE(old, 4u);
    EXPECT_LT(old, got.size());
  }
}

// Fails in the n-th operation of the first stage that it sees.
class FailsOnce final : public OperationObserver {
 public:
  explicit FailsOnce(int left) : left_(left) {}
  void begin_forward(Backend&, const Batch&) override {}
  void operation(const Operation&) override {
    if (left_ > 0 && --left_ == 0) fail(ErrorCode::internal, "planted");
  }

 private:
  int left_;
};

// Runs the requests; the first stage fails once, while plans are under way.
Bits answers_with_a_failure(Plant& plant, const EngineOptions& options, const std::vector<Request>& requests, int operation) {
  FailsOnce observer(operation);
  Engine engine(plant.runtime, plant.weights, options);
  Bits got(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) engine.submit(requests[i], {}, [&got, i](Generation&& g) { got[i] = bits_of(g); });
  for (int step = 0; step < 3; ++step) engine.step();
  plant.runtime.observer = &observer;
  int failures = 0;
  for (bool more = true; more && failures < 2;) {
    try {
      more = engine.step();
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("planted"), std::string::npos) << e.what();
      ++failures;
      // The next one is alone: what fails always would fail again at once.
      const std::int64_t following = engine.counters().following_forwards;
      more = engine.step();
      EXPECT_TRUE(std::none_of(engine.scheduler().running().begin(), engine.scheduler().running().end(), [](const Sequence* s) { return s->under_way; }));
      EXPECT_EQ(engine.counters().following_forwards, following);
    }
  }
  plant.runtime.observer = nullptr;
  EXPECT_EQ(failures, 1);
  EXPECT_GT(engine.counters().following_forwards, 0);
  expect_no_page_held(engine);
  return got;
}

TEST(FollowingPlans, StartOverWhenAForwardFails) {
  const Rich rich;
  Plant plant("sharing", "cpu-f32", {.threads = 1});
  for (const RankLayout& ranks : kStages)
    for (const int operation : {1, 9, 40}) {
      SCOPED_TRACE(fmt::format("{}, operation {}", ranks.text(), operation));
      EXPECT_EQ(answers_with_a_failure(plant, wide(ranks), rich.again(), operation), rich.want);
    }
}

void follow_until_the_end(ProcessMail& mail) {
  Plant plant("sharing", "cpu-f32", {.threads = 1});
  StepFollower follower(plant.runtime, mail);
  while (const std::optional<std::string> call = mail.next_call()) {
    try {
      ByteReader in(*call);
      follower.perform(in);
    } catch (const std::exception& e) {
      mail.fail_call(e.what());
    }
  }
}

TEST(FollowingPlans, GoOverProcessesAndStartOverThere) {
  const Rich rich;
  for (const auto& [ranks, processes] : {std::pair(kStages[0], 2), std::pair(kStages[1], 3), std::pair(kStages[2], 3)}) {
    SCOPED_TRACE(fmt::format("{}, {} processes", ranks.text(), processes));
    Bits plain, failed;
    as_processes(processes, [&, layout = ranks](ProcessMail& mail) {
      if (mail.process() > 0) return follow_until_the_end(mail);
      Plant plant("sharing", "cpu-f32", {.threads = 1});
      EngineOptions options = wide(layout);
      options.lead = &mail;
      failed = answers_with_a_failure(plant, options, rich.again(), 9);
      Engine engine(plant.runtime, plant.weights, options);
      plain = bits_of(engine.generate(rich.again()));
      EXPECT_GT(engine.counters().following_forwards, 0);
    });
    EXPECT_EQ(plain, rich.want);
    EXPECT_EQ(failed, rich.want);
  }
}

}  // namespace
}  // namespace lockstep
