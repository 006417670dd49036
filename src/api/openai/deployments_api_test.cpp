// Several models behind one API: each answers to the byte as it does alone, whatever the others are asked meanwhile; and what their names mean.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <thread>
#include <utility>

#include "api/api_test_tools.h"
#include "api/fireworks/model_completions.h"
#include "api/openai/model_deployment_routes.h"
#include "api/openai/openai_api.h"
#include "api/openai/requested_model.h"
#include "serving/loading.h"
#include "serving/served_defaults.h"

namespace lockstep {
namespace {

constexpr const char kSecret[] = "ann-has-the-key-ann-has-the-key", kOther[] = "bob-has-the-key-bob-has-the-key";

ModelDeployment opened_as(const std::string& name, const std::string& profile, const std::shared_ptr<Executor>& executor) {
  ServingModel model = serving_model(open_model({.model = LOCKSTEP_SOURCE_DIR "/models/countdown-glm", .profile = profile, .threads = 2}));
  model.name = name;
  model.executor = executor;
  ModelDeployment made;
  made.name = name;
  made.source = "models/countdown-glm";
  made.created = 1'700'000'000;
  made.service = std::make_shared<GenerationService>(std::move(model), ServingOptions{});
  return made;
}

// "a" is as the folder says, "b" computes in fp32: two models, as far as bits go.
class DeploymentsApi : public testing::Test {
 protected:
  void SetUp() override {
    deployments_ = std::make_shared<Deployments>(std::make_shared<TrafficTable>(), opened_as("a", "cpu-bf16w", executor_));
    deployments_->add(opened_as("b", "cpu-f32", executor_));
    gate_ = std::make_shared<AliasGate>(deployments_, nullptr);
    add_openai_routes(routes_, std::shared_ptr<const Deployments>(deployments_));
    ApiKeys keys;
    keys.add("ann", kSecret);
    keys.add("bob", kOther);
    Access access;
    access.keys = std::make_shared<KeyRing>(std::move(keys));
    add_model_deployment_routes(routes_, deployments_,
                                {.open = [this](const std::string& name, const std::string&) { return opened_as(name, "cpu-bf16w", executor_); },
                                 .keys = access.keys,
                                 .administrators = {"ann"},
                                 .gate = gate_});
    routes_.set_access(access);
  }
  void TearDown() override { deployments_->stop(); }
  static std::shared_ptr<Recorder> call(Routes& routes, const std::string& method, const std::string& path, const std::string& body, HeaderList headers = {}) {
    auto recorder = std::make_shared<Recorder>();
    headers.emplace_back("authorization", std::string("Bearer ") + kSecret);
    ApiRequest request{.method = method, .path = path, .content_type = "application/json", .body = body};
    request.headers = std::move(headers);
    routes.handle(std::move(request), recorder);
    return recorder;
  }
  std::shared_ptr<Recorder> call(const std::string& method, const std::string& path, const std::string& body = {}, HeaderList headers = {}) {
    return call(routes_, method, path, body, std::move(headers));
  }
  std::string model_of_answer(const std::string& fields, HeaderList headers = {}) {
    const Json json = call("POST", "/v1/completions", "{" + fields + R"(,"prompt":"3 7","max_tokens":1,"seed":5})", std::move(headers))->json();
    return json.contains("model") ? json.at("model").get<std::string>() : json.dump();
  }

  const std::shared_ptr<Executor> executor_ = std::make_shared<Executor>();
  std::shared_ptr<Deployments> deployments_;
  std::shared_ptr<AliasGate> gate_;  // none is asked for
  Routes routes_;
};

// Without what two equal requests may differ in.
Json lasting(Json answer) {
  for (const char* name : {"id", "created"}) answer.erase(name);
  if (answer.contains("usage")) answer.at("usage").erase("prompt_tokens_details");
  return answer;
}

TEST_F(DeploymentsApi, EachAnswersAsAlone) {
  const auto body = [](const char* model, int i) {
    return fmt::format(R"({{"model":"{}","prompt":"{} 7 12=48:","max_tokens":{},"seed":{},"logprobs":2,"n":{},"temperature":{}}})", model, 3 + i, 6 + i % 9, i,
                       1 + i % 2, i % 3);
  };
  constexpr int kAsked = 16;
  std::vector<std::shared_ptr<Recorder>> together[2];
  for (int i = 0; i < kAsked; ++i)
    for (int m = 0; m < 2; ++m) together[m].push_back(call("POST", "/v1/completions", body(m == 0 ? "a" : "b", i)));
  int same = 0;
  for (int m = 0; m < 2; ++m) {
    Routes alone;
    add_openai_routes(alone, opened_as(m == 0 ? "a" : "b", m == 0 ? "cpu-bf16w" : "cpu-f32", nullptr).service);
    for (int i = 0; i < kAsked; ++i) {
      const Json wanted = lasting(call(alone, "POST", "/v1/completions", body(m == 0 ? "a" : "b", i))->json());
      EXPECT_EQ(lasting(together[m][static_cast<std::size_t>(i)]->json()).dump(), wanted.dump()) << m << " " << i;
      same += together[m][static_cast<std::size_t>(i)]->json().at("choices") == together[1 - m][static_cast<std::size_t>(i)]->json().at("choices") ? 1 : 0;
    }
  }
  EXPECT_EQ(same, 0);  // the other one's answers have other bits
}

TEST_F(DeploymentsApi, NamesLeadToTheirModels) {
  const Json models = call("GET", "/v1/models")->json();
  ASSERT_EQ(models.at("data").size(), 2u);
  EXPECT_EQ(models.at("data").at(0).at("id"), "a");
  EXPECT_EQ(models.at("data").at(1).at("id"), "b");
  EXPECT_NE(models.at("data").at(0).at("profile"), models.at("data").at(1).at("profile"));
  EXPECT_EQ(call("GET", "/v1/models/b")->json().at("profile_name"), "cpu-f32");
  EXPECT_EQ(model_of_answer(R"("model":"b")"), "b");
  EXPECT_EQ(model_of_answer(R"("temperature":0)"), "a");  // none named: the first
  EXPECT_EQ(model_of_answer(R"("model":"accounts/x/models/y#accounts/x/deployments/b")"), "b");
  EXPECT_EQ(model_of_answer(R"("extra_body":null,"model":"b")").substr(0, 8), R"({"error")");  // a fault is told as ever
  const ApiResponse wrong = call("POST", "/v1/completions", R"({"model":"c","prompt":"3"})")->wait();
  EXPECT_EQ(wrong.status, 404);
  EXPECT_NE(wrong.body.find("known are 'a', 'b'"), std::string::npos) << wrong.body;
  EXPECT_NE(wrong.body.find("model_not_found"), std::string::npos);
  deployments_->route("chat", {{"b", 1}});
  EXPECT_NE(call("POST", "/v1/completions", R"({"model":"chta","prompt":"3"})")->wait().body.find("did you mean 'chat'?"), std::string::npos);
  EXPECT_EQ(call("POST", "/v1/completions", R"({"model":"b#mine","prompt":"3"})")->wait().status, 404);
  EXPECT_EQ(call("POST", "/v1/tokenize", R"({"model":"chat","prompt":"3 7"})")->json(),
            call("POST", "/v1/tokenize", R"({"model":"b","prompt":"3 7"})")->json());
  EXPECT_EQ(call("POST", "/v1/embeddings", R"({"model":"chat","input":"3 7"})")->json().at("data").at(0).at("embedding"),
            call("POST", "/v1/embeddings", R"({"model":"b","input":"3 7"})")->json().at("data").at(0).at("embedding"));
  EXPECT_NE(call("POST", "/v1/embeddings", R"({"model":"chat","input":"3 7"})")->json().at("data").at(0).at("embedding"),
            call("POST", "/v1/embeddings", R"({"model":"a","input":"3 7"})")->json().at("data").at(0).at("embedding"));
  EXPECT_EQ(call("GET", "/v1/models/chat")->json().at("deployments"), Json::parse(R"({"b":1})"));
}

TEST_F(DeploymentsApi, AnAliasSharesItsTrafficAndUsersStay) {
  EXPECT_EQ(call("PUT", "/v1/aliases/chat", R"({"deployments":{"a":1,"b":1}})")->wait().status, 200);
  std::set<std::string> seen;
  for (int i = 0; i < 24; ++i) {
    const std::string user = fmt::format(R"("model":"chat","user":"user-{}")", i), first = model_of_answer(user);
    seen.insert(first);
    EXPECT_EQ(model_of_answer(user), first) << i;
    EXPECT_EQ(model_of_answer(fmt::format(R"("user":"user-{}","model":"chat")", i)), first) << i;  // in whatever order
    const HeaderList session{{"x-session-affinity", std::to_string(i)}};
    EXPECT_EQ(model_of_answer(R"("model":"chat","user":"x")", session), model_of_answer(R"("model":"chat","user":"y")", session)) << i;
  }
  EXPECT_EQ(seen, (std::set<std::string>{"a", "b"}));
  EXPECT_EQ(call("PUT", "/v1/aliases/chat", R"({"deployments":"b"})")->wait().status, 200);
  EXPECT_EQ(model_of_answer(R"("model":"chat","user":"user-1")"), "b");
  EXPECT_EQ(call("POST", "/v1/aliases/chat/rollback")->json().at("deployments"), Json::parse(R"({"a":1,"b":1})"));
  EXPECT_EQ(call("GET", "/v1/aliases")->json().at("data").at(0).at("before"), Json::parse(R"({"b":1})"));
  EXPECT_NE(call("PUT", "/v1/aliases/chat", R"({"deployments":{"a":1,"c":1}})")->wait().body.find("'c', which is no deployment"), std::string::npos);
  EXPECT_EQ(call("PUT", "/v1/aliases/a", R"({"deployments":"b"})")->wait().status, 409);
  EXPECT_EQ(call("PUT", "/v1/aliases/chat", R"({"deployments":{"a":1.5}})")->wait().status, 400);
  EXPECT_EQ(call("DELETE", "/v1/aliases/chat")->wait().status, 200);
  EXPECT_EQ(call("DELETE", "/v1/aliases/chat")->wait().status, 404);
}

TEST_F(DeploymentsApi, OneGoesWithItsLastRequest) {
  const std::weak_ptr<GenerationService> service = deployments_->list().at(1).service;
  EXPECT_EQ(call("DELETE", "/v1/deployments/a")->wait().status, 409);  // the server's own
  deployments_->route("chat", {{"b", 1}});
  EXPECT_NE(call("DELETE", "/v1/deployments/b")->wait().body.find("'chat' has a share of 'b'"), std::string::npos);
  deployments_->traffic().remove("chat");
  std::shared_ptr<Recorder> running =
      call("POST", "/v1/completions", R"({"model":"b","prompt":"3 7 12=48:","max_tokens":300,"ignore_eos":true,"seed":5,"stream":true})");
  running->wait_begun();
  EXPECT_EQ(call("DELETE", "/v1/deployments/b")->json().at("deleted"), true);
  EXPECT_EQ(call("POST", "/v1/completions", R"({"model":"b","prompt":"3"})")->wait().status, 404);
  const std::vector<Json> parts = stream_parts(running->wait().body);  // it ends as if nothing had happened
  EXPECT_EQ(parts.back().at("choices").at(0).at("finish_reason"), "length");
  running.reset();
  for (int i = 0; i < 1000 && !service.expired(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(service.expired());
  for (int i = 0; i < 1000 && deployments_->leaving() > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(call("GET", "/v1/deployments")->json().at("leaving"), 0);
  // The name is free again, for another.
  EXPECT_EQ(call("POST", "/v1/deployments", R"({"name":"b","source":"x"})")->json().at("id"), "b");
  EXPECT_EQ(model_of_answer(R"("model":"b")"), "b");
  EXPECT_EQ(call("POST", "/v1/deployments", R"({"name":"b","source":"x"})")->wait().status, 409);
  EXPECT_EQ(call("POST", "/v1/deployments", R"({"name":"../b","source":"x"})")->wait().status, 400);
  EXPECT_EQ(call("POST", "/v1/deployments", R"({"name":"c"})")->wait().status, 400);
}

TEST_F(DeploymentsApi, ChangesAreForAdministrators) {
  const auto as_bob = [&](const std::string& method, const std::string& path, const std::string& body) {
    const auto recorder = std::make_shared<Recorder>();
    ApiRequest request{.method = method, .path = path, .content_type = "application/json", .body = body};
    request.headers.emplace_back("authorization", std::string("Bearer ") + kOther);
    routes_.handle(std::move(request), recorder);
    return recorder->wait().status;
  };
  EXPECT_EQ(as_bob("GET", "/v1/deployments", ""), 200);
  EXPECT_EQ(as_bob("POST", "/v1/deployments", R"({"name":"c","source":"x"})"), 403);
  EXPECT_EQ(as_bob("DELETE", "/v1/deployments/b", ""), 403);
  EXPECT_EQ(as_bob("PUT", "/v1/aliases/chat", R"({"deployments":"a"})"), 403);
  EXPECT_EQ(as_bob("POST", "/v1/aliases/chat/rollback", ""), 403);
  EXPECT_EQ(as_bob("DELETE", "/v1/aliases/chat", ""), 403);
  EXPECT_EQ(deployments_->names(), (std::vector<std::string>{"a", "b"}));
}

// Every answer and event says of which snapshot its weights are: OpenAI's in `snapshot`, Fireworks' behind the model's name.
TEST_F(DeploymentsApi, AnswersNameTheirSnapshot) {
  const std::string id(64, '7');
  add_model_completions(routes_, deployments_);
  deployments_->list().at(1).service->weights().name(id);
  deployments_->route("chat", {{"b", 1}});
  const auto body = [](const std::string& model, const char* more) { return fmt::format(R"({{"model":"{}","max_tokens":3,"seed":5,{}}})", model, more); };
  for (const std::string model : {"b", "chat"}) {
    EXPECT_EQ(call("POST", "/v1/completions", body(model, R"("prompt":"3 7")"))->json().at("snapshot"), id);
    for (const Json& part : stream_parts(call("POST", "/v1/completions", body(model, R"("prompt":"3 7","stream":true)"))->wait().body))
      EXPECT_EQ(part.at("snapshot"), id);
    EXPECT_EQ(call("POST", "/v1/embeddings", fmt::format(R"({{"model":"{}","input":"3 7"}})", model))->json().at("snapshot"), id);
    EXPECT_EQ(call("POST", "/inference/v1/completions", body(model, R"("prompt":"3 7")"))->json().at("model"), "b@" + id);
    const std::vector<Json> parts = stream_parts(call("POST", "/inference/v1/completions", body(model, R"("prompt":"3 7","stream":true)"))->wait().body);
    EXPECT_GE(parts.size(), 1u);
    for (const Json& part : parts) EXPECT_EQ(part.at("model"), "b@" + id);
  }
  const std::string full = "accounts/x/models/y#accounts/x/deployments/b";
  EXPECT_EQ(call("POST", "/inference/v1/completions", body(full, R"("prompt":"3 7")"))->json().at("model"), full + "@" + id);
  EXPECT_EQ(call("GET", "/v1/deployments")->json().at("data").at(1).at("snapshot"), id);
  // The other one came from a folder, and says nothing.
  EXPECT_FALSE(call("POST", "/v1/completions", body("a", R"("prompt":"3 7")"))->json().contains("snapshot"));
  EXPECT_EQ(call("POST", "/inference/v1/completions", body("a", R"("prompt":"3 7")"))->json().at("model"), "a");
  EXPECT_TRUE(call("GET", "/v1/deployments")->json().at("data").at(0).at("snapshot").is_null());
  EXPECT_EQ(call("POST", "/inference/v1/completions", body("c", R"("prompt":"3 7")"))->wait().status, 404);
  EXPECT_EQ(call("POST", "/inference/v1/completions", R"({"prompt":"3 7"})")->wait().status, 400);
}

// A name that a client of Fireworks' package made means its base model; the server's own names come first, and another key's are nobody's.
TEST_F(DeploymentsApi, ADeploymentThatAClientMadeIsSampled) {
  const auto made = std::make_shared<LocalDeployments>();
  const std::string name = "accounts/local/deployments/rollouts";
  made->change("ann", name, [](Deployment& d) { d.base_model = "accounts/local/models/b"; });
  made->change("bob", "accounts/local/deployments/other", [](Deployment& d) { d.base_model = "b"; });
  add_model_completions(routes_, deployments_, nullptr, made);
  const auto sampled = [&](const std::string& model) {
    const std::string body = fmt::format(R"({{"model":"{}","prompt":"3 7 12=48:","max_tokens":8,"seed":5,"logprobs":true}})", model);
    const Json json = call("POST", "/inference/v1/completions", body)->json();
    if (json.contains("error")) return json.at("error").at("code").get<std::string>();
    EXPECT_EQ(json.at("model"), model);
    return json.at("choices").dump();
  };
  const std::string b = sampled("b");
  EXPECT_NE(b, sampled("a"));
  EXPECT_EQ(sampled(name), b);
  EXPECT_EQ(sampled("accounts/local/models/b#" + name), b);
  EXPECT_EQ(sampled("accounts/local/deployments/other"), "model_not_found");
  EXPECT_EQ(sampled("accounts/local/deployments/never"), "model_not_found");
  made->change("ann", name, [](Deployment& d) { d.base_model = "gone"; });
  EXPECT_EQ(sampled(name), "model_not_found");
}

TEST_F(DeploymentsApi, ChatsAndResponsesNameTheirSnapshotInEveryEvent) {
  const std::string id(64, '7');
  const ChatFolder folder;
  ServingModel model = serving_model(open_model({.model = folder.path(), .threads = 2}));
  add_chat(model, folder.path());
  model.name = "c";
  model.executor = executor_;
  ModelDeployment made;
  made.name = "c";
  made.service = std::make_shared<GenerationService>(std::move(model), ServingOptions{});
  deployments_->add(std::move(made));
  const std::string chat = R"("model":"c","max_tokens":4,"seed":5,"messages":[{"role":"user","content":"3 7"}])",
                    response = R"("model":"c","max_output_tokens":4,"seed":5,"input":"3 7")", stream = R"(,"stream":true)";
  const auto answer = [&](const std::string& path, const std::string& fields) { return call("POST", path, "{" + fields + "}"); };
  const auto events = [&](const std::string& path, const std::string& fields) {
    const std::string body = answer(path, fields + stream)->wait().body;
    return path == "/v1/responses" ? typed_events_of(body) : stream_parts(body);
  };
  for (const bool named : {false, true}) {
    if (named) deployments_->list().at(2).service->weights().name(id);
    for (const auto& [path, fields] : {std::pair("/v1/chat/completions", chat), std::pair("/v1/responses", response)}) {
      SCOPED_TRACE(path);
      std::vector<Json> all = events(path, fields);
      EXPECT_GE(all.size(), 3u);
      if (all.back().contains("response")) all.push_back(all.back().at("response"));
      all.push_back(answer(path, fields)->json());
      for (const Json& one : all) EXPECT_EQ(one.value("snapshot", ""), named ? id : "") << one;
    }
  }
}

// What is answered with 200 has been kept; what is refused has not.
TEST_F(DeploymentsApi, ChangesAreKept) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / fmt::format("lockstep-kept-{}", getpid());
  std::filesystem::remove_all(folder);
  const auto stored = std::make_shared<StoredDeployments>(folder);
  Routes routes;
  add_model_deployment_routes(routes, deployments_,
                              {.open = [this](const std::string& name, const std::string&) { return opened_as(name, "cpu-bf16w", executor_); },
                               .keys = nullptr,
                               .stored = stored,
                               .gate = gate_});
  const auto change = [&](const char* method, const char* path, const char* body = "") { return call(routes, method, path, body)->wait().status; };
  EXPECT_EQ(change("POST", "/v1/deployments", R"({"name":"c","source":"folder/c"})"), 200);
  EXPECT_EQ(stored->record().made, (std::vector<DeploymentRecord::Made>{{"c", "folder/c", ""}}));
  EXPECT_EQ(change("PUT", "/v1/aliases/chat", R"({"deployments":"b"})"), 200);
  EXPECT_EQ(change("PUT", "/v1/aliases/chat", R"({"deployments":{"c":3,"a":1}})"), 200);
  EXPECT_EQ(change("PUT", "/v1/aliases/chat", R"({"deployments":"nowhere"})"), 404);
  EXPECT_EQ(stored->record().aliases.at("chat")->shares, (std::vector<TrafficShare>{{"c", 3}, {"a", 1}}));
  EXPECT_EQ(change("POST", "/v1/aliases/chat/rollback"), 200);
  EXPECT_EQ(stored->record().aliases.at("chat")->shares, (std::vector<TrafficShare>{{"b", 1}}));
  EXPECT_EQ(stored->record().aliases.at("chat")->before, (std::vector<TrafficShare>{{"c", 3}, {"a", 1}}));
  EXPECT_EQ(change("DELETE", "/v1/deployments/b"), 409);
  EXPECT_TRUE(stored->record().deleted.empty());
  EXPECT_EQ(change("DELETE", "/v1/aliases/chat"), 200);
  EXPECT_FALSE(stored->record().aliases.at("chat"));
  EXPECT_EQ(change("DELETE", "/v1/deployments/b"), 200);
  EXPECT_EQ(change("DELETE", "/v1/deployments/c"), 200);
  EXPECT_EQ(stored->record().deleted, std::vector<std::string>{"b"});
  EXPECT_TRUE(stored->record().made.empty());
  // A disk that takes nothing: the change is there, and whoever made it is told that it does not last.
  std::filesystem::remove(stored->file());
  std::filesystem::create_directories(stored->file() / "in-the-way");
  const std::shared_ptr<Recorder> lost = call(routes, "PUT", "/v1/aliases/code", R"({"deployments":"a"})");
  EXPECT_EQ(lost->wait().status, 500);
  EXPECT_NE(lost->wait().body.find("cannot be kept over a restart"), std::string::npos) << lost->wait().body;
  EXPECT_EQ(lost->wait().body.find(folder.string()), std::string::npos);
  EXPECT_TRUE(deployments_->traffic().has("code"));
  std::filesystem::remove_all(folder);
}

TEST(RequestedModel, IsReadFromTheOutermostObjectAlone) {
  int asked = 0;
  const auto read = [&](std::string_view body, bool asks) {
    return read_requested_model(body, [&](const std::string&) {
      ++asked;
      return asks;
    });
  };
  EXPECT_EQ(read(R"({"messages":[{"model":"x","user":"u"}],"model":"y"})", true).model, "y");
  EXPECT_EQ(read(R"({"metadata":{"user":"u"},"model":"y","user":"v"})", true).user, "v");
  EXPECT_EQ(read(R"({"model":"y","prompt_cache_key":"k","safety_identifier":"s"})", true).user, "s");
  EXPECT_EQ(read(R"({"model":"y","user":"v"})", false).user, "");
  EXPECT_EQ(asked, 4);
  for (const char* body : {"", "{", "[]", R"(["model","x"])", R"("model")", "7", "null", R"({"model":7})", R"({"a":["model","x"]})", R"({"model)", "\xff"})
    EXPECT_FALSE(read(body, true).model) << body;
  EXPECT_EQ(read(R"({"model":"y","user":"v" oops)", true).model, "y");
}

}  // namespace
}  // namespace lockstep
