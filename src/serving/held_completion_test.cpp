// Answers that are held and go on: what follows has the bits of a new request with that prompt and attempt.
#include "serving/held_completion.h"

#include <gtest/gtest.h>

#include <bit>
#include <future>

#include "engine/engine_test_tools.h"
#include "serving/loading.h"
#include "serving/local_sampler.h"

namespace lockstep {
namespace {

const OpenedModel& held_model() {
  static const OpenedModel model = open_model({.model = LOCKSTEP_SOURCE_DIR "/models/countdown-glm", .threads = 2});
  return model;
}
std::shared_ptr<GenerationService> held_service(const EngineOptions& engine = {}) {
  return std::make_shared<GenerationService>(serving_model(held_model()), ServingOptions{.engine = engine});
}
std::vector<std::int32_t> held_ids(const std::string& text, bool special = false) { return held_model().tokenizer->encode(text, special); }

CompletionOrder held_order(std::uint64_t seed, std::int64_t every, std::vector<std::string> strings = {}) {
  CompletionOrder order{.prompts = {{held_ids("3 7 12=48:", true)}}, .sampling = {.seed = seed}, .max_tokens = 24, .model_ends = false};
  order.holds = {every, std::move(strings)};
  return order;
}

using Script = std::function<std::optional<HoldAction>(const Hold&)>;
struct Played {
  std::vector<Hold> holds;
  std::vector<HoldOutcome> outcomes;
  std::vector<std::int32_t> told;  // sampled, as they came
  std::string text;                // as a client has it: a roll-back says all of it
  CompletionEnd end;
};
// An answer to its end, in this process.
Played play(const std::shared_ptr<GenerationService>& service, const CompletionOrder& order, Script script) {
  Played played;
  std::promise<void> done;
  const auto held = std::make_shared<HeldCompletion>(service, order,
                                                     HeldCompletion::Callbacks{.on_token =
                                                                                   [&](const OnExecutor&, const GeneratedToken& t, const std::string& text) {
                                                                                     played.told.push_back(t.id);
                                                                                     played.text += text;
                                                                                     return true;
                                                                                   },
                                                                               .on_hold =
                                                                                   [&](const OnExecutor&, const Hold& hold) {
                                                                                     played.holds.push_back(hold);
                                                                                     return script(hold);
                                                                                   },
                                                                               .on_resumed =
                                                                                   [&](const OnExecutor&, const HoldOutcome& outcome) {
                                                                                     played.outcomes.push_back(outcome);
                                                                                     if (outcome.kind == HoldAction::Kind::roll_back)
                                                                                       played.text = outcome.text;
                                                                                   },
                                                                               .on_end =
                                                                                   [&](const OnExecutor&, CompletionEnd&& end) {
                                                                                     played.text += end.text;
                                                                                     played.end = std::move(end);
                                                                                     done.set_value();
                                                                                   }});
  held->start();
  done.get_future().wait();
  return played;
}
std::optional<HoldAction> go_on(const Hold&) { return HoldAction{}; }

std::vector<std::uint32_t> token_bits(std::span<const GeneratedToken> tokens) {
  Generation g;
  g.tokens.assign(tokens.begin(), tokens.end());
  return bits_of(g);
}
// The same answer without a hold.
Generation plain(GenerationService& service, CompletionOrder order) {
  order.holds = {};
  std::promise<Generation> done;
  start_completion(
      service, order, [](const OnExecutor&, std::size_t, const GeneratedToken&, const std::string&) { return true; },
      [&](const OnExecutor&, std::size_t, CompletionEnd&& end) { done.set_value(std::move(end.generation)); });
  return done.get_future().get();
}
// A new request of what stands: the prompt, `said` of the answer, and an attempt.
Generation fresh(GenerationService& service, const CompletionOrder& order, const std::vector<std::int32_t>& said, std::int32_t attempt) {
  CompletionOrder whole = order;
  whole.holds = {};
  Request request = requests_of(whole, service)[0];
  request.prompt.insert(request.prompt.end(), said.begin(), said.end());
  request.said = static_cast<std::int32_t>(said.size());
  request.sampling.max_tokens -= request.said;
  request.sampling.attempt = attempt;
  std::promise<Generation> done;
  service.generate(request, {}, [&](Generation&& g) { done.set_value(std::move(g)); });
  return done.get_future().get();
}
ServiceSnapshot snapshot_of(GenerationService& service) {
  std::promise<ServiceSnapshot> told;
  service.snapshot([&](const ServiceSnapshot& s) { told.set_value(s); });
  return told.get_future().get();
}

TEST(HeldCompletion, HoldsAtNumbersOfTokensAndAtStringsAndGoesOnWithTheSameBits) {
  for (const bool guesses : {false, true}) {
    EngineOptions engine;
    if (guesses) engine.drafts = parse_drafts("ngram", 4);
    const auto service = held_service(engine);
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      CompletionOrder order = held_order(seed, 5, {"=", ",1"});
      order.sampling.frequency_penalty = 0.5;
      order.sampling.repetition_penalty = 1.2f;
      const Generation want = plain(*service, order);
      const Played got = play(service, order, go_on);
      EXPECT_EQ(token_bits(got.end.generation.tokens), token_bits(want.tokens));
      EXPECT_EQ(got.end.finish, FinishReason::length);
      std::vector<std::int32_t> ids;
      for (const GeneratedToken& t : want.tokens) ids.push_back(t.id);
      EXPECT_EQ(got.told, ids);
      const Tokenizer& tokenizer = *held_model().tokenizer;
      EXPECT_EQ(got.text, tokenizer.decode(ids, true));
      // Where they are, found by hand: a string that ends in a token, or a multiple of five; not behind the last token.
      std::vector<std::int64_t> positions;
      for (std::size_t n = 1; n < ids.size(); ++n) {
        const std::string before = tokenizer.decode(std::span(ids).first(n - 1), false), after = tokenizer.decode(std::span(ids).first(n), false);
        const auto ends_in = [&](const std::string& text) {
          for (std::size_t at = after.find(text); at != std::string::npos; at = after.find(text, at + 1))
            if (at + text.size() > before.size()) return true;
          return false;
        };
        if (n % 5 == 0 || ends_in("=") || ends_in(",1")) positions.push_back(static_cast<std::int64_t>(n));
      }
      std::vector<std::int64_t> held;
      for (const Hold& hold : got.holds) {
        held.push_back(hold.position);
        EXPECT_EQ(hold.number, std::ssize(held));
        EXPECT_EQ(hold.attempt, 0);
        EXPECT_EQ(hold.tokens, std::vector<std::int32_t>(ids.begin(), ids.begin() + hold.position));
      }
      EXPECT_EQ(held, positions);
      EXPECT_GE(held.size(), 4u);
    }
    EXPECT_EQ(service->bounds().open(), 0);
    EXPECT_EQ(service->statistics().held.load(), 0);
    EXPECT_GT(service->statistics().holds.load(), 10u);
    EXPECT_EQ(service->statistics().generated_tokens.load(), 2u * 4 * 24);
  }
}

TEST(HeldCompletion, WhatFollowsARollBackHasTheBitsOfANewRequest) {
  const auto service = held_service();
  int other_tokens = 0, same_attempt = 0;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    CompletionOrder order = held_order(seed, 8);
    order.sampling.temperature = 1.5f;
    order.sampling.presence_penalty = 0.7f;
    const std::vector<std::int32_t> put_in = seed % 2 ? held_ids("12-") : std::vector<std::int32_t>{};
    // Twice back to token 3, from 8 both times.
    const Played got = play(service, order, [&](const Hold& hold) -> std::optional<HoldAction> {
      if (hold.number <= 2) return HoldAction{HoldAction::Kind::roll_back, 3, put_in};
      return HoldAction{};
    });
    ASSERT_EQ(got.outcomes.size(), got.holds.size());
    ASSERT_GE(got.holds.size(), 3u);
    const std::vector<GeneratedToken>& tokens = got.end.generation.tokens;
    std::vector<std::int32_t> said(got.holds[0].tokens.begin(), got.holds[0].tokens.begin() + 3);
    said.insert(said.end(), put_in.begin(), put_in.end());
    const std::span<const GeneratedToken> rest = std::span(tokens).subspan(said.size());
    EXPECT_EQ(token_bits(rest), token_bits(fresh(*service, order, said, 2).tokens));
    other_tokens += token_bits(rest) != token_bits(fresh(*service, order, said, 1).tokens);
    // The control: with the number of the attempt before, what was rolled back comes again.
    const Generation again = fresh(*service, order, {got.holds[0].tokens.begin(), got.holds[0].tokens.begin() + 3}, 0);
    bool same = true;
    for (std::size_t i = 3; i < 8; ++i) same = same && again.tokens[i - 3].id == got.holds[0].tokens[i];
    same_attempt += same;
    EXPECT_EQ(got.holds[1].attempt, 1);
    EXPECT_EQ(got.holds[2].attempt, 2);
    EXPECT_EQ(got.outcomes[0].position, 3 + std::ssize(put_in));
    EXPECT_EQ(got.outcomes[0].rolled_back, 5);
    EXPECT_EQ(got.outcomes[0].put_in, put_in);
    EXPECT_EQ(std::ssize(tokens), 24);
    // Nobody drew what was put in: it is marked, it has no numbers, and it was told as no sampled token.
    std::vector<std::int32_t> ids;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      ids.push_back(tokens[i].id);
      EXPECT_EQ(tokens[i].put_in, i >= 3 && i < said.size());
      EXPECT_EQ(tokens[i].raw_logprob == 0 && tokens[i].sampling_logprob == 0, tokens[i].put_in);
    }
    EXPECT_EQ(got.text, held_model().tokenizer->decode(ids, true));
    EXPECT_EQ(std::ssize(got.told), 8 + (5 - std::ssize(put_in)) + (21 - std::ssize(put_in)));
  }
  EXPECT_GT(other_tokens, 3);
  EXPECT_EQ(same_attempt, 6);
  EXPECT_EQ(service->statistics().roll_backs.load(), 12u);
  EXPECT_EQ(service->statistics().put_in_tokens.load(), 6 * held_ids("12-").size());
  EXPECT_EQ(service->bounds().open(), 0);
}

// A schema is replayed over what stands, with what is put in; what it refuses changes nothing.
TEST(HeldCompletion, ASchemaIsReplayed) {
  const auto service = held_service();
  const Json schema{{"type", "array"}, {"items", {{"type", "integer"}}}, {"minItems", 3}, {"maxItems", 6}};
  const auto grammar = service->model().grammars().of_schema(schema);
  CompletionOrder order = held_order(5, 4);
  order.make_constraint = [grammar] { return make_constraint(grammar); };
  order.min_tokens = 12;
  EXPECT_EQ(token_bits(play(service, order, go_on).end.generation.tokens), token_bits(plain(*service, order).tokens));
  const std::vector<std::int32_t> put_in = held_ids("[12,34,");
  const Played got = play(service, order, [&](const Hold& hold) -> std::optional<HoldAction> {
    return hold.number == 1 ? HoldAction{HoldAction::Kind::roll_back, 0, put_in} : HoldAction{};
  });
  const Generation want = fresh(*service, order, put_in, 1);
  EXPECT_EQ(token_bits(std::span(got.end.generation.tokens).subspan(put_in.size())), token_bits(want.tokens));
  EXPECT_EQ(got.text.substr(0, 7), "[12,34,");
  if (got.end.finish == FinishReason::stop) {
    const Json value = Json::parse(got.text);
    EXPECT_GE(value.size(), 3u);
  }
  // In this process a fault ends it: nobody waits who could say another thing.
  const Played refused = play(
      service, order, [&](const Hold&) -> std::optional<HoldAction> { return HoldAction{.kind = HoldAction::Kind::roll_back, .position = 0, .text = "12,"}; });
  EXPECT_EQ(refused.end.finish, FinishReason::error);
  EXPECT_NE(refused.end.generation.error.find("what is put in cannot stand there"), std::string::npos) << refused.end.generation.error;
}

// The callback of an environment: what it puts in is marked, and an answer that it only looks at has the bits of one without it.
TEST(HeldCompletion, SamplesAreCheckedInThisProcess) {
  LocalSampler sampler(held_service());
  std::vector<SampleRequest> requests;
  for (std::int32_t i = 0; i < 4; ++i)
    requests.push_back({.prompt = held_ids("3 7 12=48:", true), .seed = 3, .sample_index = i, .max_tokens = 20, .stop_tokens = {102}});
  const std::vector<SampleResult> want = sampler.sample(requests);
  int looked = 0;
  auto looks = std::make_shared<SampleCheck>(SampleCheck{{2, {}}, [&](const Hold&) { return ++looked, HoldAction{}; }});
  for (SampleRequest& r : requests) r.check = looks;
  const std::vector<SampleResult> same = sampler.sample(requests);
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(same[i].tokens, want[i].tokens);
    EXPECT_EQ(different_bits(same[i].sampling_logprobs, want[i].sampling_logprobs), 0u);
    EXPECT_EQ(different_bits(same[i].raw_logprobs, want[i].raw_logprobs), 0u);
    EXPECT_TRUE(same[i].put_in.empty());
    EXPECT_EQ(same[i].finish, want[i].finish);
  }
  EXPECT_GT(looked, 8);
  const std::vector<std::int32_t> put_in = held_ids("12-");
  auto corrects = std::make_shared<SampleCheck>(SampleCheck{{2, {}}, [&](const Hold& hold) {
                                                              return hold.number == 1 ? HoldAction{HoldAction::Kind::roll_back, 1, put_in} : HoldAction{};
                                                            }});
  for (SampleRequest& r : requests) r.check = corrects;
  for (const SampleResult& r : sampler.sample(requests)) {
    EXPECT_NE(r.finish, SampleFinish::failed) << r.error;
    ASSERT_EQ(r.put_in.size(), r.tokens.size());
    for (std::size_t i = 0; i < r.tokens.size(); ++i) EXPECT_EQ(r.put_in[i], i >= 1 && i < 1 + put_in.size());
    EXPECT_TRUE(std::equal(put_in.begin(), put_in.end(), r.tokens.begin() + 1));
    EXPECT_FALSE(r.mixed_versions);
  }
  auto wrong = std::make_shared<SampleCheck>(SampleCheck{{2, {}}, [](const Hold&) { return HoldAction{HoldAction::Kind::roll_back, 9}; }});
  requests.resize(1);
  requests[0].check = wrong;
  const SampleResult failed = sampler.sample(requests)[0];
  EXPECT_EQ(failed.finish, SampleFinish::failed);
  EXPECT_EQ(failed.error, "position is 9, allowed is 0 to 2, which is where the stream is held");
}

// Held until somebody acts, from another thread.
class Waiting {
 public:
  Waiting(const std::shared_ptr<GenerationService>& service, const CompletionOrder& order) {
    held = std::make_shared<HeldCompletion>(
        service, order,
        HeldCompletion::Callbacks{.on_hold = [this](const OnExecutor&, const Hold& h) { return hold_.set_value(h), hold_ = {}, std::optional<HoldAction>(); },
                                  .on_end = [this](const OnExecutor&, CompletionEnd&& end) { end_.set_value(std::move(end)); }});
    auto first = hold_.get_future();
    id = held->start();
    hold = first.get();
  }
  // What was wrong; empty: nothing.
  std::string act(HoldAction action) {
    std::promise<std::string> told;
    held->act(std::move(action), [&](const HoldOutcome*, const Error* fault) { told.set_value(fault ? fault->message() : ""); });
    return told.get_future().get();
  }
  CompletionEnd end() { return end_.get_future().get(); }
  std::shared_ptr<HeldCompletion> held;
  std::uint64_t id = 0;
  Hold hold;

 private:
  std::promise<Hold> hold_;
  std::promise<CompletionEnd> end_;
};

TEST(HeldCompletion, WhatIsNotAllowedChangesNothing) {
  const auto service = held_service();
  CompletionOrder order = held_order(3, 6);
  order.stop_tokens = {102};
  order.stops = {"zz"};
  Waiting waiting(service, order);
  using Kind = HoldAction::Kind;
  EXPECT_EQ(waiting.act({Kind::roll_back, 7}), "position is 7, allowed is 0 to 6, which is where the stream is held");
  EXPECT_EQ(waiting.act({Kind::roll_back, -1}), "position is -1, allowed is 0 to 6, which is where the stream is held");
  EXPECT_EQ(waiting.act({Kind::roll_back, 2, {1, 512}}).substr(0, 36), "tokens[1] is 512, allowed are token ");
  EXPECT_EQ(waiting.act({Kind::roll_back, 2, {1, 102}}), "tokens[1] is 102, which ends the answer; allowed is the action stop");
  EXPECT_EQ(waiting.act({Kind::roll_back, 2, {1}, "1"}), "text is given beside tokens, allowed is one of them");
  EXPECT_EQ(waiting.act({Kind::roll_back, 2, std::vector<std::int32_t>(22, 1)}),
            "tokens has 22 tokens, allowed are at most 21, which leave one of max_tokens (24) to say");
  EXPECT_EQ(waiting.act({Kind::roll_back, 2, {}, "azz"}), "what is put in makes a stop string whole; allowed is the action stop");
  EXPECT_EQ(waiting.act({Kind::stop, 0, {1}}), "tokens are put in by roll_back alone");
  EXPECT_EQ(service->statistics().held.load(), 1);
  EXPECT_EQ(snapshot_of(*service).running, 0);
  EXPECT_EQ(waiting.act({Kind::stop}), "");
  const CompletionEnd end = waiting.end();
  EXPECT_EQ(end.finish, FinishReason::stop);
  EXPECT_EQ(end.generation.tokens.size(), 6u);
  EXPECT_EQ(waiting.act({}), "the stream is not held: it generates, or has ended");
  EXPECT_EQ(service->bounds().open(), 0);
}

// While it is held its place is taken and its pages are not; whichever way it ends, the place is free again.
TEST(HeldCompletion, AHeldOneKeepsItsPlaceAndEndsByCancelExpiryAndStop) {
  auto service = held_service();
  const std::int64_t pages = snapshot_of(*service).pages;
  const auto free_or_idle = [&] {
    const ServiceSnapshot s = snapshot_of(*service);
    return s.running + s.waiting == 0 && s.pages == pages;
  };
  {
    Waiting waiting(service, held_order(1, 4));
    EXPECT_EQ(service->bounds().open(), 1);
    EXPECT_TRUE(free_or_idle());
    service->cancel(waiting.id);
    EXPECT_EQ(waiting.end().finish, FinishReason::cancelled);
    EXPECT_EQ(service->bounds().open(), 0);
  }
  {
    Waiting waiting(service, held_order(1, 4));
    waiting.held->expire(2, "too early: this is the first hold");
    EXPECT_EQ(snapshot_of(*service).running, 0);
    EXPECT_EQ(service->statistics().held.load(), 1);
    waiting.held->expire(1, "nobody came");
    const CompletionEnd end = waiting.end();
    EXPECT_EQ(end.finish, FinishReason::cancelled);
    EXPECT_EQ(end.generation.error, "nobody came");
    EXPECT_EQ(end.generation.tokens.size(), 4u);
  }
  {
    Waiting waiting(service, held_order(1, 4));
    service->stop();
    EXPECT_EQ(waiting.end().finish, FinishReason::cancelled);
    EXPECT_THROW(waiting.act({}), Error);
  }
  EXPECT_EQ(service->bounds().open(), 0);
  EXPECT_EQ(service->statistics().held.load(), 0);
}

TEST(HeldCompletion, OrdersThatCannotBeHeldAreRefused) {
  const auto service = held_service();
  const auto refused = [&](const CompletionOrder& order) -> std::string {
    try {
      HeldCompletion(service, order, {});
    } catch (const OrderError& e) {
      return e.message();
    }
    return "taken";
  };
  EXPECT_EQ(refused(held_order(1, 4)), "taken");
  CompletionOrder order = held_order(1, 4);
  order.samples = 2;
  EXPECT_EQ(refused(order), "hold is given with 2 choices, allowed is one");
  order = held_order(1, 4);
  order.prompt_logprobs = true;
  EXPECT_EQ(refused(order), "hold is given with log-probabilities of the prompt, allowed is one of the two");
  order = held_order(1, 4);
  order.drafts.mode = "ngram";
  order.drafts.acceptance = DraftOptions::Acceptance::rejection;
  EXPECT_EQ(refused(order), "hold is given with rejection sampling of guesses, allowed is coupled acceptance");
  EXPECT_EQ(refused(held_order(1, 0)), "hold says nothing, allowed are a number of tokens, strings, or both");
  EXPECT_EQ(refused(held_order(1, 0, {""})), "hold.strings has a string of 0 bytes, allowed are 1 to 1000");
  EXPECT_THROW(start_completion(*service, held_order(1, 4), {}, [](const OnExecutor&, std::size_t, CompletionEnd&&) {}), OrderError);
}

}  // namespace
}  // namespace lockstep
