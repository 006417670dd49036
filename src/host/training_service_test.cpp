#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <thread>

#include "host/training_test_tools.h"

namespace lockstep {
namespace {

using Words = std::vector<std::string>;

struct Client {
  std::int64_t rank;
  int sequences;
  bool forward = false;
  std::string loss = "cross_entropy";
};
// Adapters of several ranks, one huge batch among them, one whole model, forwards, and one that asks for what there is not.
const std::vector<Client> kClients{{4, 3}, {8, 2}, {16, 60}, {4, 3, true}, {0, 2}, {8, 3}, {8, 3, false, "nonsense"}, {1, 2, true}, {33, 4}};

// What they get, all at once or one after another, over two steps; an error is its message.
Words results_of(bool share, bool at_once, std::uint64_t* shared_passes = nullptr) {
  TrainingBench bench({.tokens_a_step = 128, .share_passes = share});
  const std::string session = bench.session();
  Words models, all;
  for (std::size_t i = 0; i < kClients.size(); ++i) models.push_back(bench.model(session, static_cast<std::int64_t>(i), kClients[i].rank));
  for (int round = 0; round < 2; ++round) {
    std::promise<void> go = bench.hold();
    if (!at_once) go.set_value();
    Words requests;
    for (std::size_t i = 0; i < kClients.size(); ++i) {
      TrainingBatch batch = training_batch(10 * i + static_cast<std::uint64_t>(round), kClients[i].sequences);
      batch.forward_only = kClients[i].forward;
      batch.loss.name = kClients[i].loss;
      requests.push_back(bench.batch(models[i], 2 * round + 1, std::move(batch)));
      if (!at_once) bench.result(requests.back());
    }
    if (at_once) go.set_value();
    for (std::size_t i = 0; i < kClients.size(); ++i) {
      const Outcome batch = bench.result(requests[i]), step = bench.result(bench.step(models[i], 2 * round + 2));
      all.push_back(batch.bytes + batch.message);
      all.push_back(step.bytes + step.message);
    }
  }
  if (shared_passes) *shared_passes = bench.service->statistics().shared_passes;
  return all;
}

TEST(TrainingService, WhatSharesAPassHasTheBitsItHasAlone) {
  std::uint64_t shared = 0, alone = 0;
  const Words together = results_of(true, true, &shared), one_by_one = results_of(false, false, &alone);
  EXPECT_EQ(together, one_by_one);
  EXPECT_GE(shared, 2u);
  EXPECT_EQ(alone, 0u);
  EXPECT_NE(together[0], together[2]);
  EXPECT_NE(together[0], together[kClients.size() * 2]);  // the second round's weights are others
  EXPECT_NE(together[12].find("nonsense"), std::string::npos);
}

TEST(TrainingService, AHugeBatchDelaysASmallOneByOneTurn) {
  TrainingBench bench({.tokens_a_step = 64});
  const std::string session = bench.session(), huge = bench.model(session, 0, 8), small = bench.model(session, 1, 8);
  std::promise<void> go = bench.hold();
  const std::string long_one = bench.batch(huge, 1, training_batch(1, 200)), short_one = bench.batch(small, 1, training_batch(2, 1));
  go.set_value();
  bench.result(short_one);
  EXPECT_FALSE(bench.service->futures().done(long_one));
  EXPECT_FALSE(bench.result(long_one).failed());
}

// Turns grow where nobody waits and fall where they last too long; what they cut does not move a bit.
TEST(TrainingService, ATurnTakesMoreWhileNobodyWaits) {
  TurnSize turn;
  EXPECT_EQ(turn.tokens(64, false), 64);
  for (int i = 0; i < 5; ++i) turn.took(64 << i, 0.01, 64, 0.2);
  EXPECT_EQ(turn.tokens(64, false), 64 * TurnSize::kMostFactor);
  EXPECT_EQ(turn.tokens(64, true), 64);
  turn.took(3, 0.01, 64, 0.2);  // not a full one: nothing is learned of those
  turn.took(512, 0.3, 64, 0.2);
  EXPECT_EQ(turn.tokens(64, false), 512);
  turn.took(512, 0.5, 64, 0.2);
  EXPECT_EQ(turn.tokens(64, false), 256);
  turn.too_large();  // for the memory
  for (int i = 0; i < 5; ++i) turn.took(512, 0.01, 64, 0.2);
  EXPECT_EQ(turn.tokens(64, false), 128);
  TurnSize fixed;
  fixed.took(64, 0.01, 64, 0);
  EXPECT_EQ(fixed.tokens(64, false), 64);

  Words got[2];
  for (const bool grow : {false, true}) {
    TrainingBench bench({.tokens_a_step = 16, .turn_seconds = grow ? 10.0 : 0.0});
    const std::string session = bench.session(), model = bench.model(session, 0, 0), adapter = bench.model(session, 1, 4);
    for (const std::string& one : {model, adapter})
      for (std::int64_t step = 0; step < 3; ++step) {
        got[grow].push_back(bench.result(bench.batch(one, 2 * step + 1, training_batch(static_cast<std::uint64_t>(step), 12))).bytes);
        got[grow].push_back(bench.result(bench.step(one, 2 * step + 2)).bytes);
      }
  }
  EXPECT_EQ(got[0], got[1]);
}

// All parameters move. A step's only gradient has no accumulators; when a second one comes it is taken again, with them.
TEST(TrainingService, AGradientThatWasAloneIsTakenAgainForASecondOne) {
  Words got[2];
  for (const bool in_pieces : {false, true}) {  // pieces have accumulators from the start
    TrainingBench bench({.tokens_a_step = in_pieces ? 12 : 2048, .turn_seconds = 0});
    const std::string model = bench.model(bench.session(), 0, 0);
    std::int64_t number = 0;
    // Gradients of each step; 0: a forward between them, 9: one that is refused.
    for (const std::vector<std::uint64_t>& step : std::vector<std::vector<std::uint64_t>>{{1}, {2, 3}, {4}, {5, 0, 6, 7}, {1, 9, 8}, {8}}) {
      for (const std::uint64_t seed : step) {
        TrainingBatch batch = training_batch(seed, 3);
        batch.forward_only = seed == 0;
        if (seed == 9) batch.loss.name = "nonsense";
        const Outcome o = bench.result(bench.batch(model, ++number, std::move(batch)));
        EXPECT_EQ(o.failed(), seed == 9) << o.message;
        got[in_pieces].push_back(o.bytes);
      }
      got[in_pieces].push_back(bench.result(bench.step(model, ++number)).bytes);
    }
  }
  EXPECT_EQ(got[0], got[1]);
  std::set<std::string> different(got[0].begin(), got[0].end());
  EXPECT_GE(different.size(), got[0].size() - 2);  // nothing is repeated but by chance
}

// The likeliest tokens are of the whole vocabulary at temperature 1; beside log-probabilities of another distribution they would not say so.
TEST(TrainingService, TheLikeliestTokensAreOfNoOtherDistribution) {
  TrainingBench bench;
  const std::string model = bench.model(bench.session(), 0, 4);
  std::int64_t number = 0;
  const auto told = [&](TrainingBatch batch) {
    batch.forward_only = true;
    return bench.result(bench.service->operations().forward_top_k("me", model, ++number, std::move(batch), 3, [](const TrainingOutput& output) {
      return Outcome{"text/plain", fmt::format("{}", output.data.at(0).top_k_indices.size()), {}, {}};
    }));
  };
  const TrainingBatch plain = training_batch(1, 1);
  const Outcome all = told(plain);
  EXPECT_FALSE(all.failed()) << all.message;
  EXPECT_EQ(all.bytes, fmt::format("{}", 3 * plain.data[0].tokens.size()));
  TrainingBatch tempered = plain;
  tempered.loss.config["temperature"] = 0.5;
  EXPECT_NE(told(tempered).message.find("data[0] is scored at temperature 0.5, and the likeliest tokens (top_k)"), std::string::npos);
  TrainingBatch cut = plain;
  cut.loss.config["target_logprob_support"] = std::string("sampling_support");
  const NamedTensor& targets = plain.data[0].inputs.at("target_tokens");
  NamedTensor kept;
  kept.is_float = false;
  kept.shape = {targets.shape[0], 1};
  kept.integers = targets.integers;
  cut.data[0].inputs["kept_tokens"] = kept;
  EXPECT_NE(told(cut).message.find("data[0] is scored at temperature 1 over kept_tokens, and the likeliest tokens (top_k)"), std::string::npos);
}

// A client's own loss is computed of log-probabilities over the whole vocabulary; kept tokens beside it would change nothing.
TEST(TrainingService, ACustomLossTakesNoKeptTokens) {
  TrainingBench bench;
  const std::string session = bench.session(), model = bench.model(session, 0, 4);
  const auto ref = [](const char* name) -> TrainingJson { return {{"ref", name}}; };
  const TrainingJson result = {{"tuple", TrainingJson::array({ref("sum"), {{"dict", TrainingJson::object()}}})}};
  TrainingJson nodes = TrainingJson::array();
  nodes.push_back({{"op", "placeholder"}, {"name", "logprobs"}, {"target", "logprobs"}, {"args", TrainingJson::array()}, {"kwargs", TrainingJson::object()}});
  nodes.push_back(
      {{"op", "call_method"}, {"name", "sum"}, {"target", "sum"}, {"args", TrainingJson::array({ref("logprobs")})}, {"kwargs", TrainingJson::object()}});
  nodes.push_back({{"op", "output"}, {"name", "output"}, {"target", "output"}, {"args", TrainingJson::array({result})}, {"kwargs", TrainingJson::object()}});
  TrainingJson input;
  input["name"] = "logprobs";
  input["rank"] = 1;
  TrainingJson document;
  document["name"] = "sum";
  document["inputs"] = TrainingJson::array({input});
  document["graph"] = {{"format", 1}, {"nodes", nodes}};
  const Outcome loss = bench.result(bench.service->custom_losses().create("me", session, 0, document, [](const std::string& id) {
    return Outcome{"text/plain", id, {}, {}};
  }));
  ASSERT_FALSE(loss.failed()) << loss.message;
  TrainingBatch batch = training_batch(1, 1);
  batch.loss.name = "custom";
  batch.loss.config["loss_id"] = loss.bytes;
  const Outcome plain = bench.result(bench.batch(model, 1, batch));
  EXPECT_FALSE(plain.failed()) << plain.message;
  NamedTensor kept = batch.data[0].inputs.at("target_tokens");
  kept.shape = {kept.shape[0], 1};
  batch.data[0].inputs["kept_tokens"] = kept;
  EXPECT_NE(bench.result(bench.batch(model, 2, batch)).message.find("data[0].loss_fn_inputs.kept_tokens is given, and a custom loss"), std::string::npos);
}

bool within_a_minute(const std::function<bool()>& holds) {
  for (int i = 0; i < 6000 && !holds(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return holds();
}

TEST(TrainingService, ChunksThatCameFirstAreComputedFirst) {
  Words got[2];
  for (const bool late : {false, true})
    for (const std::int64_t rank : {8, 0}) {
      TrainingBench bench({.tokens_a_step = 20});
      const std::string model = bench.model(bench.session(), 0, rank);
      Words requests(5);
      const auto send = [&](std::int64_t n) {
        requests[static_cast<std::size_t>(n)] = bench.batch(model, n, training_batch(static_cast<std::uint64_t>(n), 3));
      };
      if (late) {
        for (const std::int64_t n : {2, 3, 4}) send(n);
        EXPECT_TRUE(within_a_minute([&] { return bench.service->statistics().early == 3; }));
        EXPECT_FALSE(bench.service->futures().done(requests[2]));  // the number in front of it may change the model yet
        send(1);
      } else {
        for (const std::int64_t n : {1, 2, 3, 4}) send(n);
      }
      const std::string step = bench.step(model, 5), after = bench.batch(model, 6, training_batch(9, 2));
      for (const std::string& r : {requests[1], requests[2], requests[3], requests[4], step, after}) {
        const Outcome o = bench.result(r);
        EXPECT_FALSE(o.failed()) << o.message;
        got[late].push_back(o.bytes);
      }
      EXPECT_EQ(bench.service->statistics().undone, 0u);
    }
  EXPECT_EQ(got[0], got[1]);
}

TEST(TrainingService, EarlyWorkIsUndoneWhenTheModelChangesUnderIt) {
  Words got[2];
  for (const bool late : {false, true})
    for (const std::int64_t rank : {8, 0})
      for (const bool forward : {false, true}) {
        TrainingBench bench;
        const std::string model = bench.model(bench.session(), 0, rank);
        SaveRequest save;
        save.name = "start";
        const auto text = [](const auto& r) { return Outcome{"text/plain", r.id.empty() ? "" : "done", {}, {}}; };
        bench.result(bench.service->operations().save("me", model, 1, save, [](const CheckpointRecord&) { return Outcome{"text/plain", "saved", {}, {}}; }));
        bench.result(bench.batch(model, 2, training_batch(2, 3)));
        bench.result(bench.step(model, 3));
        TrainingBatch batch = training_batch(5, 4);
        batch.forward_only = forward;
        std::string later;
        if (late) {
          later = bench.batch(model, 5, batch);
          EXPECT_TRUE(within_a_minute([&] { return bench.service->statistics().early == 1; }));
        }
        const std::string load = bench.service->operations().load("me", model, 4, "start", false, text);
        if (!late) later = bench.batch(model, 5, batch);
        const std::string more = bench.batch(model, 6, training_batch(6, 2)), step = bench.step(model, 7);
        for (const std::string& r : {load, later, more, step}) {
          const Outcome o = bench.result(r);
          EXPECT_FALSE(o.failed()) << o.message;
          got[late].push_back(o.bytes);
        }
        EXPECT_EQ(bench.service->statistics().undone, late ? 1u : 0u);
      }
  EXPECT_EQ(got[0], got[1]);
}

TEST(TrainingService, OneKeyLeavesOthersTheirShareOfTheLimits) {
  TrainingBench bench({.max_sessions = 5, .max_kept_models = 6, .key_share = 50});
  const std::string mine = bench.session("me");
  bench.session("me"), bench.session("me");
  EXPECT_EQ(error_text([&] { bench.session("me"); }), "this API key has 3 sessions, allowed are 3 of the server's 5 (--key-share)");
  const std::string yours = bench.session("you");

  Words models;
  for (std::int64_t i = 0; i < 3; ++i) models.push_back(bench.model(mine, i, 2));
  bench.model(yours, 0, 2, "you");

  // Models at rest count, too; those that could not be made do not.
  const std::string refused = bench.result(bench.submit_model(mine, 3, 2)).message;
  EXPECT_EQ(refused, "this API key has 3 models, allowed are 3 of the server's 6 (--key-share); unload some");
  EXPECT_EQ(bench.result(bench.submit_model(mine, 4, 2)).message, refused);
  for (std::int64_t i = 1; i < 3; ++i) bench.model(yours, i, 2, "you");
  bench.result(bench.service->model_life().unload("me", models[1], [](const ModelRecord&) { return Outcome{"text/plain", "gone", {}, {}}; }));
  bench.model(mine, 5, 2);
}

// The session `s` of "me", its models and samplers, as far as they are there; without being heard.
std::string what_is_left(TrainingBench& bench, const std::string& s) {
  std::string left;
  for (const SessionRecord& session : bench.service->sessions().all("me")) left += session.id == s ? "session " : "";
  for (const ModelRecord& model : bench.service->models().all("me")) left += model.session == s ? "model " : "";
  for (std::size_t i = 0; i < bench.service->samplers().all("me", s).size(); ++i) left += "sampler ";
  return left;
}

TEST(TrainingService, WhatNobodyCameBackForGoes) {
  const auto snapshot = [](TrainingBench& bench, const std::string& model) {
    return bench
        .result(bench.service->operations().save_sampler("me", model, 1, false,
                                                         [](const SamplerRecord& r) {
                                                           return Outcome{"text/plain", r.id, {}, {}};
                                                         }))
        .bytes;
  };
  // Everything is on disk, so that its removal has something to remove.
  TrainingServiceOptions options{.session_seconds = 5, .sampler_seconds = 0.5, .sampler_bytes = 0};
  TrainingBench bench(options);
  const std::string s = bench.session(), model = bench.model(s, 0, 2), first = snapshot(bench, model);
  bench.result(bench.service->operations().save("me", model, 2, {.name = "kept"}, [](const CheckpointRecord& r) {
    return Outcome{"text/plain", r.path(), {}, {}};
  }));
  const auto folders = [&] {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(bench.folder / "samplers")) count += entry.is_directory();
    return count;
  };
  EXPECT_EQ(folders(), 1u);
  EXPECT_EQ(what_is_left(bench, s), "session model sampler ");
  const auto wait_until = [&](const std::string& left, bool heartbeats) {
    for (int i = 0; i < 3000; ++i) {
      if (heartbeats) bench.service->session_life().hear("me", s);
      else bench.session("other");  // who comes in looks
      if (what_is_left(bench, s) == left) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  };
  // Heartbeats hold the session, and not a snapshot that nobody samples.
  EXPECT_TRUE(wait_until("session model ", true)) << what_is_left(bench, s);
  for (int i = 0; i < 500 && folders() > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));  // after the record
  EXPECT_EQ(folders(), 0u);
  EXPECT_NE(error_text([&] { bench.service->samplers().find("me", first); }).find("--sampler-hours"), std::string::npos);
  EXPECT_TRUE(wait_until("", false)) << what_is_left(bench, s);
  EXPECT_EQ(bench.service->checkpoints().all("me").size(), 1u);
  // A restart finds nothing of them, and the time begins anew.
  const std::string again = bench.session();
  bench.service.reset();
  options.state = bench.folder;
  options.session_seconds = 30;
  bench.service = std::make_shared<TrainingService>(bench.base, bench.generation, options);
  EXPECT_EQ(what_is_left(bench, s), "");
  EXPECT_EQ(bench.service->checkpoints().all("me").size(), 1u);
  EXPECT_EQ(bench.service->sessions().find("me", again).id, again);
}

// What a kill leaves is what the folder holds at that moment.
TEST(TrainingService, ASnapshotThatAKillTookIsNotTheBase) {
  TrainingBench bench;
  const std::string model = bench.model(bench.session(), 0, 2);
  const std::string sampler =
      bench.result(bench.service->operations().save_sampler("me", model, 1, false,
                                                            [](const SamplerRecord& r) {
                                                              return Outcome{"text/plain", r.id, {}, {}};
                                                            }))
          .bytes;
  TrainingServiceOptions options;
  options.state = bench.folder / "killed";
  std::filesystem::create_directories(options.state);
  for (const auto& entry : std::filesystem::directory_iterator(bench.folder))
    if (entry.path().filename() != "killed") std::filesystem::copy(entry, options.state / entry.path().filename(), std::filesystem::copy_options::recursive);
  TrainingService after(bench.base, bench.generation, options);
  EXPECT_EQ(error_text([&] { bench.service->samplers().weights("me", sampler); }), "accepted");
  EXPECT_NE(error_text([&] { after.samplers().weights("me", sampler); }).find("went down with a server that was killed"), std::string::npos);
}

TEST(TrainingService, RecordsOfOneKeyLeaveOthersTheirShare) {
  const TrainingBench bench;
  const auto store = std::make_shared<TrainingStore>(bench.folder / "records");
  const auto nothing = [](TrainerJob&) {};
  {
    StoredRecords<TrainerJob> jobs(store, "job", KeyLimit(5, 50));
    for (const char* name : {"a", "b", "c"}) jobs.change("me", name, nothing);
    jobs.change("me", "b", nothing);  // it is there
    EXPECT_EQ(error_text([&] { jobs.change("me", "d", nothing); }), "this API key has 3 records of kind job, allowed are 3 of the server's 5 (--key-share)");
  }
  StoredRecords<TrainerJob> jobs(store, "job", KeyLimit(5, 50));  // they are counted where they are read again
  EXPECT_NE(error_text([&] { jobs.change("me", "d", nothing); }), "accepted");
  jobs.change("he", "a", nothing), jobs.change("you", "a", nothing);
  EXPECT_EQ(error_text([&] { jobs.change("you", "b", nothing); }), "this API key has 1 records of kind job and all keys together 5, allowed are 5");
  jobs.remove("me", "a"), jobs.remove("he", "a");
  jobs.change("me", "d", nothing);
  EXPECT_TRUE(jobs.change_existing("me", "d", nothing));
  EXPECT_FALSE(jobs.change_existing("me", "none", nothing));
  EXPECT_FALSE(jobs.find("me", "none"));
}

// As where it is deleted while the weights are read.
TEST(TrainingService, ALoadIntoNoDeploymentMakesNone) {
  TrainingBench bench;
  ControlPlane& control = bench.service->control();
  const std::string name = "accounts/local/deployments/gone";
  EXPECT_NE(error_text([&] { control.hot_load("me", name, "step-1", "tiny"); }).find("there is no deployment"), std::string::npos);
  EXPECT_FALSE(control.deployments.find("me", name));
}

TEST(TrainingService, AModelThatCouldNotBeMadeEndsWhatCameWithItAtOnce) {
  TrainingBench bench;
  const std::string session = bench.session();
  std::promise<void> go = bench.hold();
  CreateModel wanted;
  wanted.session = session;
  wanted.settings.base_model = "teny";
  const auto made = [](const ModelRecord& r) { return Outcome{"text/plain", r.id, {}, {}}; };
  const std::string id = ModelLife::id_of(wanted), creation = bench.service->model_life().create("me", wanted, made);
  SaveRequest save;
  save.name = "x";
  // In its turn; early; behind a gap; and one that would heal a model that is lost.
  const Words requests{bench.batch(id, 1, training_batch(1, 2)), bench.batch(id, 3, training_batch(2, 2)), bench.step(id, 5),
                       bench.service->operations().load("me", id, 2, "x", false, made)};
  go.set_value();
  EXPECT_NE(bench.result(creation).message.find("did you mean 'tiny'"), std::string::npos);
  for (const std::string& request : requests) EXPECT_NE(bench.result(request).message.find("could not be made: base_model is 'teny'"), std::string::npos);
  for (const std::int64_t number : {4, 6, 100})
    EXPECT_NE(error_text([&] { bench.step(id, number); }).find("could not be made: base_model is 'teny'"), std::string::npos);
  EXPECT_NE(error_text([&] { bench.service->operations().load("me", id, 7, "x", false, made); }).find("could not be made"), std::string::npos);
  EXPECT_TRUE(bench.service->models().all("me").empty());
  wanted.number = 1;
  wanted.settings.base_model = "tiny";
  EXPECT_FALSE(bench.result(bench.service->model_life().create("me", wanted, made)).failed());  // the session has others
}

// Where a result is told the operation counts as ended, of whatever kind and however it ended: metrics that are read then have it.
TEST(TrainingService, AResultIsToldWhenItIsCounted) {
  TrainingBench bench;
  const std::string model = bench.model(bench.session(), 0, 2);
  std::promise<void> go = bench.hold();
  TrainingBatch wrong = training_batch(1, 2);
  wrong.loss.name = "no such loss";
  const Words requests{bench.batch(model, 1, training_batch(1, 2)), bench.step(model, 2), bench.step(model, 3), bench.batch(model, 4, wrong)};
  const TrainingStatistics& statistics = bench.service->statistics();
  std::vector<std::promise<std::pair<std::uint64_t, std::uint64_t>>> counted(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i)
    EXPECT_TRUE(bench.service->futures().wait(requests[i], "me", 120, [&statistics, told = &counted[i]](const Outcome*) {
      told->set_value({statistics.operations.load(), statistics.failed.load()});
    }));
  go.set_value();
  for (std::size_t i = 0; i < requests.size(); ++i)  // the second step has no gradient
    EXPECT_EQ(counted[i].get_future().get(), (std::pair<std::uint64_t, std::uint64_t>(i + 1, i < 2 ? 0 : i - 1))) << i;
}

TEST(TrainingService, NumbersThatWereAcknowledgedAreKnownAgain) {
  const TrainingBench bench;
  const std::filesystem::path folder = bench.folder / "numbers-of-a-test";
  AcknowledgedNumbers numbers(folder);
  EXPECT_EQ(numbers.last("m"), 0);
  for (const std::int64_t n : {std::int64_t{7}, std::numeric_limits<std::int64_t>::max(), std::int64_t{12}}) {
    numbers.note("m", n);
    EXPECT_EQ(AcknowledgedNumbers(folder).last("m"), n);
  }
  numbers.forget("m");
  EXPECT_EQ(numbers.last("m"), 0);
  std::filesystem::remove_all(folder);
  EXPECT_NE(error_text([&] { numbers.note("m", 1); }).find("cannot be written"), std::string::npos);
}

TEST(TrainingService, ModelsThatAreUnloadedTellWhoWaits) {
  TrainingBench bench;
  const std::string model = bench.model(bench.session(), 0, 8);
  const std::string waits = bench.step(model, 2);
  bench.result(bench.service->model_life().unload("me", model, [](const ModelRecord&) { return Outcome{"text/plain", "gone", {}, {}}; }));
  EXPECT_NE(bench.result(waits).message.find("unloaded"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
