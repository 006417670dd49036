#include "api/openai/service_tier.h"

#include <gtest/gtest.h>

#include "api/access.h"
#include "api/api_test_tools.h"
#include "api/openai/openai_api.h"
#include "api/operations.h"
#include "serving/loading.h"
#include "serving/served_defaults.h"

namespace lockstep {
namespace {

// Two keys, of which one's requests are rollouts.
class ServiceTier : public testing::Test {
 protected:
  static std::shared_ptr<GenerationService> service() {
    static const ChatFolder folder;
    static const auto one = [] {
      ServingModel model = serving_model(open_model({.model = folder.path(), .threads = 2}));
      add_chat(model, folder.path());
      model.name = "chatty";
      return std::make_shared<GenerationService>(std::move(model), ServingOptions{.engine = {.live_token_seconds = 0.04}});
    }();
    return one;
  }
  void SetUp() override {
    add_openai_routes(routes_, service());
    add_operation_routes(routes_, service(), std::make_shared<ServerState>(), "test");
    ApiKeys keys;
    keys.add("ann", kAnn);
    keys.add("loop", kLoop);
    Access access;
    access.keys = std::make_shared<KeyRing>(std::move(keys));
    routes_.set_access(std::move(access));
    service()->callers().set_classes({{"loop", WorkClass::rollouts}});
  }
  std::shared_ptr<Recorder> call(const std::string& method, const std::string& path, const std::string& key, const std::string& body = {}) {
    auto recorder = std::make_shared<Recorder>();
    ApiRequest request{method, path, "", "application/json", body};
    request.headers.emplace_back("authorization", "Bearer " + key);
    routes_.handle(std::move(request), recorder);
    return recorder;
  }
  std::shared_ptr<Recorder> complete(const std::string& key, const std::string& more) {
    return call("POST", "/v1/completions", key, R"({"prompt":"3 7 12=48:","max_tokens":6,"seed":5)" + more + "}");
  }
  static constexpr const char *kAnn = "key-of-ann-0123456789", *kLoop = "key-of-loop-0123456789";
  Routes routes_;
};

TEST_F(ServiceTier, AnswersTellTheTierThatTheyWereMadeUnder) {
  const Json plain = complete(kAnn, "")->json();
  EXPECT_EQ(plain.at("service_tier"), "default");
  for (const auto& [tier, told] :
       {std::pair("auto", "default"), std::pair("default", "default"), std::pair("priority", "default"), std::pair("flex", "flex")}) {
    const std::string given = fmt::format(R"(,"service_tier":"{}")", tier);
    for (const bool of_loop : {false, true}) {
      const Json answer = complete(of_loop ? kLoop : kAnn, given)->json();
      EXPECT_EQ(answer.at("service_tier"), of_loop ? "flex" : told) << tier;
      EXPECT_EQ(answer.at("choices"), plain.at("choices"));  // no bit depends on it
    }
    for (const Json& part : stream_parts(complete(kAnn, given + R"(,"stream":true)")->wait().body)) EXPECT_EQ(part.at("service_tier"), told);
    const std::string talk = R"({"messages":[{"role":"user","content":"3"}],"max_tokens":2)" + given + "}";
    EXPECT_EQ(call("POST", "/v1/chat/completions", kAnn, talk)->json().at("service_tier"), told);
    EXPECT_EQ(call("POST", "/v1/responses", kAnn, R"({"input":"3","max_output_tokens":2)" + given + "}")->json().at("service_tier"), told);
  }
  EXPECT_EQ(complete(kLoop, "")->json().at("service_tier"), "flex");
}

TEST_F(ServiceTier, AnUnknownOneIsRefused) {
  for (const char* tier : {R"("scale")", R"("Flex")", "3"}) {
    for (const auto& [path, what] :
         {std::pair("/v1/completions", R"("prompt":"3")"), std::pair("/v1/chat/completions", R"("messages":[{"role":"user","content":"3"}])"),
          std::pair("/v1/responses", R"("input":"3")")}) {
      const Json error = call("POST", path, kAnn, fmt::format(R"({{{},"service_tier":{}}})", what, tier))->json().at("error");
      EXPECT_EQ(error.at("param"), "service_tier") << path;
      EXPECT_NE(error.at("message").get<std::string>().find("allowed are auto, default, flex, priority"), std::string::npos) << error;
    }
  }
}

// They have no tier; the key's class is theirs.
TEST_F(ServiceTier, EmbeddingsAreOfTheKeysClass) {
  const auto taken = [&](WorkClass work) { return service()->statistics().by_class[static_cast<std::size_t>(work)].requests.load(); };
  const std::uint64_t live = taken(WorkClass::live), rollouts = taken(WorkClass::rollouts);
  const std::string body = R"({"model":"chatty","input":["3 7","12"]})";
  EXPECT_EQ(call("POST", "/v1/embeddings", kAnn, body)->json().at("data"), call("POST", "/v1/embeddings", kLoop, body)->json().at("data"));
  EXPECT_EQ(taken(WorkClass::live) - live, 2u);
  EXPECT_EQ(taken(WorkClass::rollouts) - rollouts, 2u);
}

TEST_F(ServiceTier, MetricsAreByClass) {
  const auto tokens = [&] {
    const auto& by_class = service()->statistics().by_class;
    return std::pair(by_class[0].tokens.load(), by_class[1].tokens.load());
  };
  const auto before = tokens();
  complete(kAnn, R"(,"ignore_eos":true)")->wait();
  complete(kLoop, R"(,"ignore_eos":true,"n":2)")->wait();
  const auto after = tokens();
  EXPECT_EQ(after.first - before.first, 6u);
  EXPECT_EQ(after.second - before.second, 12u);
  const std::string shown(call("GET", "/metrics", kAnn)->wait().bytes());
  for (const std::string line : {"lockstep_class_sequences_total{class=\"rollouts\"} ", "lockstep_class_first_token_seconds_count{class=\"live\"} ",
                                 "lockstep_class_token_gap_seconds_count{class=\"rollouts\"} ", "lockstep_engine_live_rows_total "})
    EXPECT_NE(shown.find("\n" + line), std::string::npos) << line;
  EXPECT_NE(shown.find(fmt::format("\nlockstep_class_tokens_total{{class=\"rollouts\"}} {}\n", after.second)), std::string::npos);
}

}  // namespace
}  // namespace lockstep
