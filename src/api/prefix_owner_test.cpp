// Cached prompts are found by the key that sent them alone, over every wire that samples: who asks a prompt learns nothing of whether
// another key asked it.
#include <gtest/gtest.h>

#include "api/api_test_tools.h"
#include "api/fireworks/fireworks_routes.h"
#include "api/openai/openai_api.h"
#include "api/tinker/tinker_routes.h"
#include "host/training_test_tools.h"
#include "serving/loading.h"

namespace lockstep {
namespace {

struct SharingServer {
  Routes routes;
  std::shared_ptr<GenerationService> service;

  explicit SharingServer(bool share_prefixes, bool with_keys = true) {
    service = std::make_shared<GenerationService>(serving_model(open_model({.model = LOCKSTEP_SOURCE_DIR "/models/countdown-glm", .threads = 2})),
                                                  ServingOptions{.max_open = 64, .share_prefixes = share_prefixes});
    add_openai_routes(routes, service);
    if (!with_keys) return;
    ApiKeys keys;
    for (const char* name : {"ann", "bob"}) keys.add(name, std::string("key-of-") + name + "-0123456789");
    Access access;
    access.keys = std::make_shared<const KeyRing>(std::move(keys));
    routes.set_access(std::move(access));
  }
  std::int64_t cached(const std::string& name, const std::string& prompt) {
    ApiRequest request{"POST", "/v1/completions", "", "application/json",
                       Json{{"model", "countdown-glm"}, {"prompt", prompt}, {"max_tokens", 4}, {"temperature", 0}}.dump()};
    request.headers.emplace_back("authorization", "Bearer key-of-" + name + "-0123456789");
    const auto recorder = std::make_shared<Recorder>();
    routes.handle(std::move(request), recorder);
    const Json answer = recorder->json();
    return answer.at("usage").at("prompt_tokens_details").at("cached_tokens").get<std::int64_t>();
  }
};

const std::string kLongPrompt = "3 7 12=48: 3 7 12=48: 3 7 12=48: 3 7 12=48: 3 7 12=48: 3 7 12=48:";

TEST(PrefixOwners, OneKeyLearnsNothingOfAnothersPrompts) {
  SharingServer server(false);
  EXPECT_EQ(server.cached("ann", kLongPrompt), 0);
  EXPECT_EQ(server.cached("bob", kLongPrompt), 0);
  EXPECT_GE(server.cached("ann", kLongPrompt), 16);
  EXPECT_GE(server.cached("bob", kLongPrompt), 16);
  EXPECT_NE(server.service->callers().prefix_owner("ann"), server.service->callers().prefix_owner("bob"));
}

TEST(PrefixOwners, AllShareWhereThatIsChosenAndWhereNobodyHasAKey) {
  SharingServer all(true);
  EXPECT_EQ(all.cached("ann", kLongPrompt), 0);
  EXPECT_GE(all.cached("bob", kLongPrompt), 16);
  SharingServer keyless(false, false);
  EXPECT_EQ(keyless.cached("ann", kLongPrompt), 0);
  EXPECT_GE(keyless.cached("bob", kLongPrompt), 16);  // what is sent is no key of the server's
}

TEST(PrefixOwners, TheTrainingApiTellsItsKeysApartToo) {
  TrainingBench bench;
  Routes routes;
  add_tinker_routes(routes, bench.service);
  add_fireworks_routes(routes, bench.service, ShapeCatalog::published());
  std::vector<std::int32_t> prompt;
  for (int i = 0; i < 48; ++i) prompt.push_back(i + 1);
  const auto ask = [&](const std::string& path, const std::string& key, const Json& body) {
    ApiRequest request{"POST", path, "", "application/json", body.dump()};
    request.headers.emplace_back("x-api-key", key);
    const auto recorder = std::make_shared<Recorder>();
    routes.handle(std::move(request), recorder);
    return recorder->json();
  };
  const auto completion = [&](const std::string& key) {
    const Json answer =
        ask("/inference/v1/completions", key, {{"model", "tiny"}, {"prompt", prompt}, {"max_tokens", 3}, {"seed", 1}, {"perf_metrics_in_response", true}});
    return answer.at("perf_metrics").at("cached-prompt-tokens").get<std::string>();
  };
  EXPECT_EQ(completion("a"), "0");
  EXPECT_EQ(completion("b"), "0");
  EXPECT_EQ(completion("a"), "32");
  const auto sample = [&](const std::string& owner) {
    const std::string session = bench.session(owner), sampler = bench.service->samplers().create(owner, session, 0, "tiny", "");
    SamplingRequest wanted;
    wanted.prompt = prompt;
    wanted.prompt[0] = 60;  // another text than that of the completions
    wanted.max_tokens = 3;
    wanted.seed = 1;
    const Outcome told = bench.result(bench.service->sampling().sample(owner, sampler, 0, wanted,
                                                                       [](const SamplingResult& r) {
                                                                         return Outcome{"text/plain", std::to_string(r.cached_tokens), {}, {}};
                                                                       }),
                                      owner);
    return told.bytes;
  };
  EXPECT_EQ(sample("one"), "0");
  EXPECT_EQ(sample("two"), "0");
  EXPECT_EQ(sample("one"), "32");
}

}  // namespace
}  // namespace lockstep
