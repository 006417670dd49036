// What a client may leave behind in a training server, and that the rest is others': failed creations, its own data, checkpoints, numbers of
// operations. Errors name what, the value, what is allowed and the option.
#include <gtest/gtest.h>
#include <malloc.h>

#include <fstream>
#include <thread>

#include "host/training_test_tools.h"

namespace lockstep {
namespace {

std::int64_t resident_megabytes() {
  malloc_trim(0);
  std::ifstream file("/proc/self/statm");
  std::int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE) >> 20;
}

TEST(TrainingLimits, ModelsThatCouldNotBeMadeLeaveAWordBehind) {
  TrainingBench bench({.max_unmade = 100, .metadata_bytes = 1 << 20});
  const std::string session = bench.session();
  CreateModel wanted;
  wanted.session = session;
  wanted.settings.base_model = "teny";
  wanted.settings.user_metadata = ClientJson(TrainingJson{{"notes", std::string(400'000, 'n')}});
  const auto made = [](const ModelRecord& r) { return Outcome{"text/plain", r.id, {}, {}}; };
  const auto fail_one = [&](std::int64_t number) {
    wanted.number = number;
    return bench.result(bench.service->model_life().create("me", wanted, made)).message;
  };
  fail_one(0);
  const std::int64_t before = resident_megabytes();
  for (std::int64_t i = 1; i <= 500; ++i) EXPECT_NE(fail_one(i).find("base_model is 'teny'"), std::string::npos);
  EXPECT_LT(resident_megabytes() - before, 60);  // 200 MB of notes were sent
  EXPECT_TRUE(bench.service->models().all("me").empty());
  // The newest are told why; of the older it is told that there is none.
  EXPECT_NE(error_text([&] { bench.service->models().find("me", ModelLife::id_of(wanted)); }).find("could not be made: base_model is 'teny'"),
            std::string::npos);
  wanted.number = 3;
  EXPECT_NE(error_text([&] { bench.service->models().find("me", ModelLife::id_of(wanted)); }).find("there is no model"), std::string::npos);
  wanted.number = 500;
  EXPECT_NE(error_text([&] { bench.service->models().find("you", ModelLife::id_of(wanted)); }).find("there is no model"), std::string::npos);
  // A message is no place to keep megabytes either.
  wanted.number = 501;
  wanted.settings.base_model = std::string(1 << 20, 'b');
  EXPECT_LT(bench.result(bench.service->model_life().create("me", wanted, made)).message.size(), 5000u);
}

TEST(TrainingLimits, ModelsThatAreStillToBeMadeCountToo) {
  TrainingBench bench({.max_kept_models = 6, .key_share = 50});
  const std::string session = bench.session();
  std::promise<void> go = bench.hold();
  std::vector<std::string> requests;
  for (std::int64_t i = 0; i < 3; ++i) requests.push_back(bench.submit_model(session, i, 2));
  EXPECT_EQ(bench.result(bench.submit_model(session, 3, 2)).message,
            "this API key has 3 models, allowed are 3 of the server's 6 (--key-share); unload some");  // at once
  go.set_value();
  for (const std::string& request : requests) EXPECT_FALSE(bench.result(request).failed());
}

TEST(TrainingLimits, AClientsOwnDataHasASize) {
  const TrainingBench bench({.metadata_bytes = 1000});
  SessionRecord wanted;
  wanted.user_metadata = ClientJson(TrainingJson{{"a", std::string(2000, 'a')}});
  EXPECT_EQ(error_text([&] { bench.service->session_life().create("me", wanted); }),
            "user_metadata has 2008 bytes of JSON, allowed are 1000 (--metadata-kilobytes)");
  wanted.user_metadata = ClientJson(TrainingJson{{"a", std::string(900, 'a')}});
  wanted.tags = ClientJson(TrainingJson::array({std::string(2000, 'a')}));
  EXPECT_NE(error_text([&] { bench.service->session_life().create("me", wanted); }).find("tags has 2004 bytes"), std::string::npos);
  wanted.tags = ClientJson(TrainingJson::array({"a"}));
  wanted.display_name = std::string(5000, 'd');
  EXPECT_EQ(error_text([&] { bench.service->session_life().create("me", wanted); }), "display_name has 5000 bytes, allowed are 4096");
  wanted.display_name = "d";
  const std::string session = bench.service->session_life().create("me", wanted);
  EXPECT_NE(error_text([&] { bench.service->sessions().assign("me", session, std::string(5000, 'p')); }), "accepted");
  EXPECT_NE(error_text([&] { bench.service->sessions().finish("me", session, "finished: success", std::string(5000, 'p')); }), "accepted");
  EXPECT_EQ(bench.service->sessions().find("me", session).status, "active");
}

// A tree of values takes some thirty times its text.
TEST(TrainingLimits, AClientsOwnDataIsKeptAsItsText) {
  const TrainingBench bench;
  SessionRecord wanted;
  TrainingJson empties = TrainingJson::array();
  for (int i = 0; i < 5000; ++i) empties.push_back(TrainingJson::array());
  wanted.tags = ClientJson(empties);
  bench.service->session_life().create("me", wanted);
  const std::int64_t before = resident_megabytes();
  for (int i = 0; i < 500; ++i) {
    wanted.tags = ClientJson(empties);
    bench.service->session_life().create("me", wanted);
  }
  EXPECT_LT(resident_megabytes() - before, 40);  // 7.5 MB of text
  EXPECT_EQ(bench.service->sessions().all("me").front().tags.value(), empties);
}

TEST(TrainingLimits, AllClientsOwnDataHasASizeOfWhichAKeyHasAShare) {
  TrainingBench bench({.metadata_bytes = 20 << 20});
  SessionRecord wanted;
  wanted.user_metadata = ClientJson(TrainingJson{{"a", std::string(19 << 20, 'a')}});
  for (int i = 0; i < 6; ++i) bench.service->session_life().create("me", wanted);
  const std::string refusal = error_text([&] { bench.service->session_life().create("me", wanted); });
  EXPECT_NE(refusal.find(
                "this API key has 114.0 MB of user_metadata, tags and custom losses and asks for 19.0 MB more, allowed are 128.0 MB of the server's 256.0 MB "
                "(--key-share"),
            std::string::npos)
      << refusal;
  bench.service->session_life().create("you", wanted);  // has a share of its own
  wanted.user_metadata = {};
  const std::string session = bench.service->session_life().create("me", wanted);
  CreateModel model;
  model.session = session;
  model.settings.base_model = "tiny";
  model.settings.rank = 2;
  model.settings.user_metadata = ClientJson(TrainingJson{{"a", std::string(19 << 20, 'a')}});
  const auto made = [](const ModelRecord& r) { return Outcome{"text/plain", r.id, {}, {}}; };
  EXPECT_EQ(bench.result(bench.service->model_life().create("me", model, made)).message, refusal);
  model.number = 1;
  model.settings.user_metadata = {};
  EXPECT_FALSE(bench.result(bench.service->model_life().create("me", model, made)).failed());
  SaveRequest save;
  save.name = "a";
  save.user_metadata = {{"a", std::string(19 << 20, 'a')}};
  const auto saved = [](const CheckpointRecord& r) { return Outcome{"text/plain", r.path(), {}, {}}; };
  EXPECT_EQ(bench.result(bench.service->operations().save("me", ModelLife::id_of(model), 1, save, saved)).message, refusal);
  save.user_metadata = {{"a", "b"}};
  EXPECT_FALSE(bench.result(bench.service->operations().save("me", ModelLife::id_of(model), 2, save, saved)).failed());
}

// The first copy may still be under way when its client sends the request again.
TEST(TrainingLimits, ACopyThatIsAskedForAgainIsTheFirst) {
  TrainingBench bench;
  const std::string model = bench.model(bench.session(), 0, 2);
  bench.result(bench.service->operations().save("me", model, 1, {.name = "a"}, [](const CheckpointRecord& r) {
    return Outcome{"text/plain", r.path(), {}, {}};
  }));
  CopyRequest copy;
  copy.source = "a";
  copy.idempotency_key = "once";
  std::vector<std::string> paths(8);
  std::vector<std::thread> clients;
  for (std::string& path : paths) clients.emplace_back([&] { path = bench.service->checkpoints().copy("me", copy); });
  for (std::thread& client : clients) client.join();
  for (const std::string& path : paths) EXPECT_EQ(path, paths[0]);
  EXPECT_EQ(bench.service->checkpoints().all("me").size(), 2u);
  copy.idempotency_key = "another";
  EXPECT_NE(bench.service->checkpoints().copy("me", copy), paths[0]);
}

// A loss of 80 KB as a text takes megabytes.
TEST(TrainingLimits, CustomLossesCountAsAClientsOwnData) {
  TrainingBench bench({.key_share = 10});
  std::string ones = "1";
  for (int i = 1; i < 40'000; ++i) ones += ",1";
  const TrainingJson document = TrainingJson::parse(
      R"({"name":"large","inputs":[{"name":"logprobs","rank":1}],"graph":{"format":1,"nodes":[
        {"op":"placeholder","name":"logprobs","target":"logprobs"},
        {"op":"call_function","name":"unused","target":"torch.arange","args":[)" +
      ones + R"(]},
        {"op":"call_method","name":"sum","target":"sum","args":[{"ref":"logprobs"}]},
        {"op":"output","name":"output","target":"output","args":[{"tuple":[{"ref":"sum"},{"dict":{}}]}]}]}})");
  const auto make = [&](const std::string& owner, const std::string& session, std::int64_t number) {
    const std::string request = bench.service->custom_losses().create(owner, session, number, document, [](const std::string& id) {
      return Outcome{"text/plain", id, {}, {}};
    });
    return bench.result(request, owner);
  };
  const std::string session = bench.session();
  std::int64_t made = 0;
  Outcome last = make("me", session, made);
  while (!last.failed() && made < 20) last = make("me", session, ++made);
  EXPECT_GE(made, 3);  // of 4.6 MB each
  EXPECT_LE(made, 6);
  EXPECT_NE(last.message.find("of user_metadata, tags and custom losses and asks for 4."), std::string::npos) << last.message;
  EXPECT_NE(last.message.find("of the server's 256.0 MB (--key-share"), std::string::npos) << last.message;
  // Another session of the key has no room either; another key has its own.
  EXPECT_EQ(make("me", bench.session(), 0).message, last.message);
  EXPECT_FALSE(make("you", bench.session("you"), 0).failed());
}

TEST(TrainingLimits, CheckpointsHaveAQuotaOfWhichAKeyHasAShare) {
  const std::int64_t one = [] {
    TrainingBench bench;
    const std::string model = bench.model(bench.session(), 0, 2);
    bench.result(bench.service->operations().save("me", model, 1, {.name = "a"}, [](const CheckpointRecord& r) {
      return Outcome{"text/plain", r.path(), {}, {}};
    }));
    return bench.service->checkpoints().all("me").front().bytes;
  }();
  TrainingBench bench({.checkpoint_bytes = 5 * one, .key_share = 50});
  const std::string mine = bench.model(bench.session(), 0, 2), yours = bench.model(bench.session("you"), 0, 2, "you");
  std::int64_t number = 0, other_number = 0;
  const auto save = [&](const std::string& name, bool overwrite = false) {
    SaveRequest wanted;
    wanted.name = name;
    wanted.overwrite = overwrite;
    return bench.result(bench.service->operations().save("me", mine, ++number, wanted, [](const CheckpointRecord& r) {
      return Outcome{"text/plain", r.path(), {}, {}};
    }));
  };
  EXPECT_FALSE(save("a").failed());
  EXPECT_FALSE(save("b").failed());
  const std::string refused = save("c").message;
  EXPECT_NE(refused.find("of checkpoints and promoted models and asks for"), std::string::npos) << refused;
  EXPECT_NE(refused.find("(--checkpoint-megabytes, --key-share); delete some, or let them expire"), std::string::npos) << refused;
  EXPECT_FALSE(save("b", true).failed());  // in its own place
  CopyRequest copy;
  copy.source = "a";
  EXPECT_NE(error_text([&] { bench.service->checkpoints().copy("me", copy); }).find("--checkpoint-megabytes"), std::string::npos);
  SaveRequest others;
  for (const char* name : {"a", "b"}) {  // they have their share
    others.name = name;
    EXPECT_FALSE(bench
                     .result(bench.service->operations().save("you", yours, ++other_number, others,
                                                              [](const CheckpointRecord& r) {
                                                                return Outcome{"text/plain", r.path(), {}, {}};
                                                              }),
                             "you")
                     .failed());
  }
  bench.service->checkpoints().remove("me", bench.service->checkpoints().all("me").front().path());
  EXPECT_FALSE(save("c").failed());
  EXPECT_EQ(bench.service->checkpoints().all("me").size(), 2u);
  EXPECT_FALSE(bench.result(bench.batch(mine, ++number, training_batch(1, 1))).failed());
  EXPECT_FALSE(bench.result(bench.step(mine, ++number)).failed());  // a save that was refused broke nothing
}

TEST(TrainingLimits, OldNumbersAreForgottenAndNeverRunTwice) {
  TrainingBench bench({.max_numbers = 40, .key_share = 50});
  const std::string session = bench.session(), model = bench.model(session, 0, 2);
  std::vector<std::string> requests;
  for (std::int64_t i = 1; i <= 60; ++i) {
    requests.push_back(bench.batch(model, i, training_batch(1, 1)));
    bench.result(requests.back());
  }
  EXPECT_EQ(bench.batch(model, 60, training_batch(1, 1)), requests[59]);  // the same request
  EXPECT_NE(bench.result(bench.batch(model, 5, training_batch(1, 1))).message.find("was used before"), std::string::npos);
  const std::string sampler = bench.service->samplers().create("me", session, 0, "tiny", "");
  SamplingRequest wanted;
  wanted.prompt = {1, 2, 3};
  wanted.max_tokens = 1;
  const auto sample = [&](std::int64_t number) {
    const std::string request = bench.service->sampling().sample("me", sampler, number, wanted, [](const SamplingResult&) {
      return Outcome{"text/plain", "x", {}, {}};
    });
    bench.result(request);
    return request;
  };
  const std::string first = sample(0);
  EXPECT_EQ(sample(0), first);
  for (std::int64_t i = 1; i <= 60; ++i) sample(i);
  EXPECT_NE(sample(0), first);  // it is not known any more, and sampled anew
  // A waiting operation is the same request whatever was forgotten since.
  const std::string waiting = bench.batch(model, 100, training_batch(1, 1));
  for (std::int64_t i = 100; i <= 160; ++i) sample(i);
  EXPECT_EQ(bench.batch(model, 100, training_batch(1, 1)), waiting);
}

TEST(TrainingLimits, ResultsInMemoryAreCountedWithTheirMessages) {
  Futures futures(std::make_shared<Deadlines>(), nullptr, 1 << 20);
  const std::string first = futures.create("me", "m");
  futures.fail(first, Error(ErrorCode::invalid_argument, std::string(3000, 'e')));
  EXPECT_TRUE(futures.belongs(first, "me"));
  for (int i = 0; i < 1000; ++i) futures.fail(futures.create("me", "m"), Error(ErrorCode::invalid_argument, std::string(3000, 'e')));
  EXPECT_FALSE(futures.belongs(first, "me"));
}

}  // namespace
}  // namespace lockstep
