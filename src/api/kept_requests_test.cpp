// What a request's forward leaves for its owner's training, by what the request, its key and its route say: rows that are kept and rows that training reads.
#include "serving/kept_requests.h"

#include <gtest/gtest.h>

#include <bit>
#include <sstream>

#include "api/api_test_tools.h"
#include "api/fireworks/fireworks_routes.h"
#include "api/openai/keep_field.h"
#include "api/tinker/tinker_routes.h"
#include "host/training_test_tools.h"

namespace lockstep {
namespace {

// Two keys, a training service that keeps forwards, and the routes on it.
struct KeepingServer {
  TrainingBench bench;
  Routes routes;
  explicit KeepingServer(const std::string& mode = "all", const RankLayout& ranks = {})
      : bench({}, {.threads = 1}, {}, ranks, {.mode = mode, .megabytes = 64}) {
    add_tinker_routes(routes, bench.service);
    add_fireworks_routes(routes, bench.service, ShapeCatalog::published());
    ApiKeys keys;
    for (const char* name : {"ann", "bob"}) keys.add(name, key_of(name));
    Access access;
    access.keys = std::make_shared<const KeyRing>(std::move(keys));
    routes.set_access(std::move(access));
  }
  static std::string key_of(const std::string& name) { return "key-of-" + name + "-0123456789"; }
  Json ask(const std::string& path, const std::string& name, const Json& body) {
    ApiRequest request{"POST", path, "", "application/json", body.dump()};
    request.headers.emplace_back("x-api-key", key_of(name));
    const auto recorder = std::make_shared<Recorder>();
    routes.handle(std::move(request), recorder);
    return recorder->json();
  }
  std::int64_t kept() const { return bench.service->kept_forwards()->statistics().kept; }
  std::int64_t read() const { return bench.service->kept_forwards()->statistics().read; }
  // An adapter of its own, whose weights are saved under that name.
  std::string saved_model(const std::string& owner, const std::string& name) {
    const std::string model = bench.model(bench.session(owner), 0, 4, owner);
    const Outcome saved = bench.result(bench.service->operations().save(owner, model, 1, {.kind = "sampler_weights", .name = name},
                                                                        [](const CheckpointRecord& r) {
                                                                          return Outcome{"text/plain", r.path(), {}, {}};
                                                                        }),
                                       owner);
    EXPECT_FALSE(saved.failed()) << saved.message;
    return model;
  }
  // Ids of the prompt and what was said behind it, under the weights of that name.
  std::vector<std::int32_t> complete(const std::string& owner, const std::string& name, const Json& more = Json::object()) {
    Json body{{"model", "accounts/local/trainingSamplers/checkpoints/" + name}, {"prompt", kPrompt}, {"max_tokens", 20}, {"seed", 1}, {"raw_output", true}};
    body.update(more);
    const Json answer = ask("/inference/v1/completions", owner, body);
    std::vector<std::int32_t> ids = kPrompt;
    if (!answer.contains("choices")) {
      ADD_FAILURE() << answer;
      return ids;
    }
    for (const Json& id : answer.at("choices").at(0).at("raw_output").at("completion_token_ids")) ids.push_back(id.get<std::int32_t>());
    return ids;
  }
  // The gradient of a text, or its log-probabilities alone; its bits.
  std::string learn(const std::string& owner, const std::string& model, std::int64_t number, const std::vector<std::int32_t>& ids, bool forward_only = false) {
    TrainingBatch batch;
    batch.loss.name = "cross_entropy";
    batch.forward_only = forward_only;
    TrainingDatum datum;
    datum.tokens.assign(ids.begin(), ids.end() - 1);
    NamedTensor targets;
    targets.is_float = false;
    targets.shape = {std::ssize(datum.tokens)};
    targets.integers.assign(ids.begin() + 1, ids.end());
    datum.inputs["target_tokens"] = targets;
    batch.data.push_back(datum);
    const Outcome told = bench.result(bench.batch(model, number, batch, owner), owner);
    EXPECT_FALSE(told.failed()) << told.message;
    return told.bytes;
  }
  const std::vector<std::int32_t> kPrompt = {5, 9, 2, 40, 41, 42, 43, 44, 45, 3, 1};
};

TEST(KeptRequests, OfADeploymentsCompletionsTrainingReadsTheRows) {
  KeepingServer server, plain("off");
  const std::string model = server.saved_model("ann", "one");
  const std::vector<std::int32_t> ids = server.complete("ann", "one");
  const std::int64_t rows = std::ssize(ids) - 1;  // none of the last token
  const std::string learned = server.learn("ann", model, 2, ids);
  EXPECT_EQ(server.read(), rows);
  EXPECT_GE(server.kept(), rows);
  // The control: the same without.
  const std::string other = plain.saved_model("ann", "one");
  EXPECT_EQ(plain.complete("ann", "one"), ids);
  EXPECT_EQ(plain.learn("ann", other, 2, ids), learned);
}

// Sampling and training have ranks: what the engine's first one keeps, those of the trainer read, or nothing is kept and a request that asks for it is refused.
TEST(KeptRequests, OverRanksTrainingReadsTheRowsToo) {
  KeepingServer plain("off");
  const std::string other = plain.saved_model("ann", "one");
  const std::vector<std::int32_t> said = plain.complete("ann", "one");
  const std::string want = plain.learn("ann", other, 2, said);
  for (const auto& [mode, ranks] : {std::pair{"inputs", "tp=2"}, std::pair{"inputs", "tp=2,dp=2"}, std::pair{"all", "dp=2"}}) {
    SCOPED_TRACE(ranks);
    KeepingServer server(mode, rank_layout(ranks));
    const std::string model = server.saved_model("ann", "one");
    EXPECT_EQ(server.complete("ann", "one"), said);
    EXPECT_EQ(server.learn("ann", model, 2, said), want);
    EXPECT_EQ(server.read(), std::ssize(said) - 1);
  }
  KeepingServer none("all", rank_layout("tp=2"));
  const Json refused = none.ask("/inference/v1/completions", "ann", {{"model", "tiny"}, {"prompt", none.kPrompt}, {"keep_forward", true}});
  EXPECT_EQ(refused.at("error").at("param"), "keep_forward") << refused;
}

TEST(KeptRequests, ARequestMaySayNo) {
  KeepingServer server;
  const std::string model = server.saved_model("ann", "one");
  const std::vector<std::int32_t> ids = server.complete("ann", "one", {{"keep_forward", false}});
  EXPECT_EQ(server.kept(), 0);
  server.learn("ann", model, 2, ids);
  EXPECT_EQ(server.read(), 0);
  EXPECT_EQ(server.complete("ann", "one", {{"keep_forward", true}}), ids);
  EXPECT_GT(server.kept(), 0);
  server.learn("ann", model, 3, ids);
  EXPECT_EQ(server.read(), std::ssize(ids) - 1);
}

TEST(KeptRequests, AKeyMaySayNoAndItsRequestsThenCannotSayYes) {
  KeepingServer server;
  server.saved_model("ann", "one");
  server.bench.generation->callers().set_keeping({{"ann", false}});
  server.complete("ann", "one");
  EXPECT_EQ(server.kept(), 0);
  const Json refused = server.ask("/inference/v1/completions", "ann",
                                  {{"model", "accounts/local/trainingSamplers/checkpoints/one"}, {"prompt", server.kPrompt}, {"keep_forward", true}});
  EXPECT_EQ(refused.at("error").at("param"), "keep_forward") << refused;
  EXPECT_NE(refused.at("error").at("message").get<std::string>().find("the key file says keep_forward=false of this key"), std::string::npos) << refused;
}

TEST(KeptRequests, OfTheBaseAreKeptWhereTheRequestOrTheKeySaysSo) {
  KeepingServer server;
  const Json plain{{"model", "tiny"}, {"prompt", server.kPrompt}, {"max_tokens", 20}, {"seed", 1}};
  server.ask("/inference/v1/completions", "ann", plain);
  EXPECT_EQ(server.kept(), 0);
  server.bench.generation->callers().set_keeping({{"ann", true}});
  server.ask("/inference/v1/completions", "ann", plain);
  const std::int64_t by_key = server.kept();
  EXPECT_GT(by_key, 0);
  Json asks = plain;
  asks["keep_forward"] = true;
  server.ask("/inference/v1/completions", "bob", asks);
  EXPECT_GT(server.kept(), by_key);
}

TEST(KeptRequests, AnotherKeyReadsNothing) {
  KeepingServer server;
  const auto base_of = [&](const std::string& owner) {
    CreateModel wanted;
    wanted.session = server.bench.session(owner);
    wanted.settings.base_model = "tiny";
    wanted.settings.base_only = true;
    const Outcome made = server.bench.result(server.bench.service->model_life().create(owner, wanted,
                                                                                       [](const ModelRecord& r) {
                                                                                         return Outcome{"text/plain", r.id, {}, {}};
                                                                                       }),
                                             owner);
    EXPECT_FALSE(made.failed()) << made.message;
    return made.bytes;
  };
  const std::vector<std::int32_t> ids = server.complete("ann", "absent-is-the-base", {{"model", "tiny"}, {"keep_forward", true}});
  EXPECT_GT(server.kept(), 0);
  const std::string bobs = server.learn("bob", base_of("bob"), 1, ids, true);
  EXPECT_EQ(server.read(), 0);
  EXPECT_EQ(server.learn("ann", base_of("ann"), 1, ids, true), bobs);
  EXPECT_EQ(server.read(), std::ssize(ids) - 1);
}

TEST(KeptRequests, AreRefusedWhereNothingIsKept) {
  KeepingServer off("off");
  const Json refused = off.ask("/inference/v1/completions", "ann", {{"model", "tiny"}, {"prompt", off.kPrompt}, {"keep_forward", true}});
  EXPECT_EQ(refused.at("error").at("param"), "keep_forward") << refused;
  const Json fine = off.ask("/inference/v1/completions", "ann", {{"model", "tiny"}, {"prompt", off.kPrompt}, {"keep_forward", false}});
  EXPECT_TRUE(fine.contains("choices")) << fine;  // what it asks for is so
  KeepingServer on;
  const GenerationService& service = *on.bench.generation;
  EXPECT_TRUE(kept_as_asked(service, "ann", true));
  EXPECT_FALSE(kept_as_asked(service, "ann", std::nullopt));
  EXPECT_NE(why_not_kept(service, "").find("knows no owner"), std::string::npos);
  EXPECT_FALSE(keeps_forward(service, "", std::nullopt, true));
  EXPECT_THROW(kept_as_asked(service, "", true), Error);
}

TEST(KeptRequests, ASampleOfATrainingSessionMaySayNoToo) {
  KeepingServer server;
  const std::string sampler = server.bench.service->samplers().create("ann", server.bench.session("ann"), 0, "tiny", "");
  const auto sample = [&](std::int64_t number, std::optional<bool> keep) {
    SamplingRequest wanted;
    wanted.prompt = server.kPrompt;
    wanted.max_tokens = 20;
    wanted.seed = 1;
    wanted.keep_forward = keep;
    const std::string request = server.bench.service->sampling().sample("ann", sampler, number, wanted, [](const SamplingResult& r) {
      return Outcome{"text/plain", std::to_string(r.sequences.size()), {}, {}};
    });
    return server.bench.result(request, "ann");
  };
  EXPECT_FALSE(sample(0, false).failed());
  EXPECT_EQ(server.kept(), 0);
  EXPECT_FALSE(sample(1, std::nullopt).failed());
  EXPECT_GT(server.kept(), 0);
  server.bench.generation->callers().set_keeping({{"ann", false}});
  EXPECT_NE(sample(2, true).message.find("keep_forward is true, and the key file says"), std::string::npos);
}

// A sampler of a training session, and what it answers as text: ids, then the bits of the prompt's log-probabilities.
struct SessionSampler {
  KeepingServer& server;
  std::string owner, sampler;
  std::int64_t number = 0;
  SessionSampler(KeepingServer& s, const std::string& whose)
      : server(s), owner(whose), sampler(s.bench.service->samplers().create(whose, s.bench.session(whose), 0, "tiny", "")) {}
  std::string ask(const SamplingRequest& wanted) {
    const std::string request = server.bench.service->sampling().sample(owner, sampler, number++, wanted, [](const SamplingResult& r) {
      std::string text;
      for (const std::int32_t id : r.sequences.at(0).tokens) text += std::to_string(id) + " ";
      for (const float logprob : r.prompt_logprobs) text += std::to_string(std::bit_cast<std::uint32_t>(logprob)) + " ";
      return Outcome{"text/plain", text, {}, {}};
    });
    const Outcome told = server.bench.result(request, owner);
    EXPECT_FALSE(told.failed()) << told.message;
    return told.bytes;
  }
};

TEST(KeptRequests, LogProbabilitiesOfAPromptReadTheKeysOwnRows) {
  KeepingServer server, plain("off");
  SessionSampler ann(server, "ann"), bob(server, "bob"), other(plain, "ann");
  SamplingRequest wanted;
  wanted.prompt = server.kPrompt;
  wanted.max_tokens = 30;
  wanted.seed = 1;
  wanted.stop_tokens = std::vector<std::int32_t>();
  const std::string said = ann.ask(wanted);
  EXPECT_EQ(other.ask(wanted), said);
  std::istringstream ids(said);
  for (std::int32_t id; ids >> id;) wanted.prompt.push_back(id);
  ASSERT_EQ(wanted.prompt.size(), server.kPrompt.size() + 30);
  const std::int64_t pages = (std::ssize(wanted.prompt) - 1) / 16 * 16;  // the rest is computed, for its keys
  wanted.max_tokens = 1;
  wanted.prompt_logprobs = true;
  const std::string scores = other.ask(wanted);
  EXPECT_EQ(bob.ask(wanted), scores);
  EXPECT_EQ(server.read(), 0);
  EXPECT_EQ(ann.ask(wanted), scores);
  EXPECT_EQ(server.read(), pages);
  EXPECT_EQ(bob.ask(wanted), scores);  // what its first question computed
  EXPECT_EQ(server.read(), 2 * pages);
}

}  // namespace
}  // namespace lockstep
