// Hostile bodies for every route of the training API, on a living service: each field of a right body replaced, left out or grown, and
// bytes changed at random. One answer each, never a 500, and soon, also where a body is long; what is wrong with a field names it.
#include <gtest/gtest.h>

#include "api/api_test_tools.h"
#include "api/body_time_test_tools.h"
#include "api/fireworks/fireworks_routes.h"
#include "api/tinker/tinker_routes.h"
#include "base/hash.h"
#include "host/training_test_tools.h"

namespace lockstep {
namespace {
using std::string_literals::operator""s;

struct HostileApi {
  TrainingBench bench{{.max_models = 10'000}};
  Routes routes;
  std::string session, model, sampler;
  bool taken = false;  // whether the last body was: its number is used

  HostileApi() {
    add_tinker_routes(routes, bench.service);
    add_fireworks_routes(routes, bench.service, ShapeCatalog::published());
    session = bench.session("key-" + sha256_hex("k").substr(0, 24));
    model = bench.model(session, 0, 2, owner());
    sampler = bench.service->samplers().create(owner(), session, 0, "tiny", "");
  }
  static std::string owner() { return "key-" + sha256_hex("k").substr(0, 24); }
  // `route`: of a POST below /api/v1/, or a method, a blank and a path with its query.
  ApiResponse ask(const std::string& route, const std::string& body, const std::string& content_type = "application/json") {
    ApiRequest request{"POST", "/api/v1/" + route, "", content_type, body};
    if (const std::size_t blank = route.find(' '); blank != std::string::npos) {
      const std::size_t query = std::min(route.find('?'), route.size());
      request.method = route.substr(0, blank);
      request.path = route.substr(blank + 1, query - blank - 1);
      if (query < route.size()) request.query = route.substr(query + 1);
    }
    request.headers.emplace_back("x-api-key", "k");
    const auto recorder = std::make_shared<Recorder>();
    routes.handle(std::move(request), recorder);
    return recorder->wait();
  }
  // The error of what a body asks for, whether the answer says it or the result; "" without one.
  std::string error_of(const std::string& route, const std::string& body) {
    const ApiResponse answer = ask(route, body);
    taken = answer.status == 200;
    EXPECT_LT(answer.status, 500) << route << " " << body.substr(0, 500) << "\n" << answer.body;
    const Json json = Json::parse(answer.body);
    if (answer.status != 200) {
      EXPECT_TRUE(json.contains("detail") && !json["detail"].get<std::string>().empty()) << answer.body;
      return json.value("detail", "");
    }
    if (!json.contains("request_id") || route == "retrieve_future") return "";
    const Outcome outcome = bench.result(json["request_id"], owner());
    EXPECT_TRUE(!outcome.failed() || outcome.category == "user") << outcome.category << " " << route << " " << body.substr(0, 500) << "\n" << outcome.message;
    return outcome.message;
  }
};

Json hostile_batch() {
  const Json tensor{{"dtype", "int64"}, {"data", {2, 3, 4}}, {"shape", {3}}};
  return {
      {"data",
       {{{"model_input",
          {{"chunks", {{{"type", "encoded_text"}, {"tokens", {1, 2, 3}}}}}, {"routing_matrices", {"", "", ""}}, {"routing_matrix_format", "base64_inline"}}},
         {"loss_fn_inputs", {{"target_tokens", tensor}}}}}},
      {"loss_fn", "cross_entropy"},
      {"loss_fn_config", Json::object()}};
}

// Right bodies; $S, $M and $P become ids, and seq_id a number of its own.
std::vector<std::pair<std::string, Json>> right_bodies() {
  const Json prompt{{"chunks", {{{"type", "encoded_text"}, {"tokens", {1, 2, 3}}}}}};
  return {
      {"create_session", {{"tags", {"a"}}, {"user_metadata", {{"a", 1}}}, {"project_id", "p"}, {"display_name", "d"}}},
      {"session_heartbeat", {{"session_id", "$S"}}},
      {"create_model",
       {{"session_id", "$S"},
        {"model_seq_id", 0},
        {"base_model", "tiny"},
        {"lora_config", {{"rank", 2}, {"alpha", 8}, {"seed", 1}, {"train_attn", true}}},
        {"user_metadata", Json::object()}}},
      {"get_info", {{"model_id", "$M"}}},
      {"forward", {{"model_id", "$M"}, {"seq_id", 0}, {"forward_input", hostile_batch()}}},
      {"forward_backward", {{"model_id", "$M"}, {"seq_id", 0}, {"forward_backward_input", hostile_batch()}}},
      {"optim_step",
       {{"model_id", "$M"},
        {"seq_id", 0},
        {"adam_params", {{"learning_rate", 1e-4}, {"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"weight_decay", 0.0}, {"grad_clip_norm", 1.0}}}}},
      {"save_weights", {{"model_id", "$M"}, {"seq_id", 0}, {"path", "name"}, {"overwrite", true}, {"ttl_seconds", 60}}},
      {"save_weights_for_sampler", {{"model_id", "$M"}, {"seq_id", 0}, {"path", "name"}, {"overwrite", true}}},
      {"load_weights", {{"model_id", "$M"}, {"seq_id", 0}, {"path", "name"}, {"optimizer", true}}},
      {"create_sampling_session", {{"session_id", "$S"}, {"sampling_session_seq_id", 0}, {"base_model", "tiny"}}},
      {"asample",
       {{"sampling_session_id", "$P"},
        {"seq_id", 0},
        {"num_samples", 1},
        {"prompt", prompt},
        {"prompt_logprobs", true},
        {"topk_prompt_logprobs", 1},
        {"sampling_params", {{"max_tokens", 2}, {"temperature", 1.0}, {"top_p", 1.0}, {"top_k", -1}, {"seed", 3}, {"stop", {1, 2}}}}}},
      {"weights_info", {{"tinker_path", "tinker://x/weights/y"}}},
      {"sessions/search", {{"session_id", "$S"}, {"limit", 3}, {"user_metadata", {{"a", 1}}}}},
      {"retrieve_future", {{"request_id", "req-x"}}},
  };
}

class HostileBodies : public testing::Test {
 protected:
  HostileApi api;
  std::int64_t sequence = 0;

  std::string text_of(Json body) {
    for (const char* name : {"seq_id", "model_seq_id", "sampling_session_seq_id"})
      if (body.contains(name) && body[name] == 0) body[name] = counters_[counter_of(name, body)] + 1;
    return with_ids(body.dump());
  }
  std::string with_ids(std::string text) const {
    for (const auto& [mark, id] : {std::pair("$S", &api.session), std::pair("$M", &api.model), std::pair("$P", &api.sampler)})
      for (std::size_t at = text.find(mark); at != std::string::npos; at = text.find(mark)) text.replace(at, 2, *id);
    return text;
  }
  std::string error_of(const std::string& route, const Json& body) {
    const std::string error = api.error_of(route, text_of(body));
    for (const char* name : {"seq_id", "model_seq_id", "sampling_session_seq_id"})
      if (api.taken && body.contains(name) && body[name] == 0) ++counters_[counter_of(name, body)];
    return error;
  }
  static std::string counter_of(const std::string& name, const Json& body) {
    return name == "seq_id" && body.contains("sampling_session_id") ? "sample" : name;
  }
  std::map<std::string, std::int64_t> counters_;
};

TEST_F(HostileBodies, AnyFieldMayBeWrong) {
  const std::vector<Json> wrongs{nullptr,
                                 true,
                                 -1,
                                 1e300,
                                 std::int64_t{1} << 62,
                                 UINT64_MAX,
                                 "",
                                 "x",
                                 "../../etc/passwd",
                                 std::string(5000, 'a'),
                                 "a\0b"s,
                                 Json::array(),
                                 Json::object(),
                                 {{"a", {{"b", 1}}}},
                                 Json::array({nullptr}),
                                 "tinker://../../x"};
  int named = 0, refused = 0;
  for (const auto& [route, right] : right_bodies()) {
    std::vector<Json::json_pointer> paths;
    paths_of(right, Json::json_pointer(), paths);
    for (const Json::json_pointer& path : paths)
      for (const Json& wrong : wrongs) {
        Json body = right;
        body[path] = wrong;
        if (path.back() == "seq_id" && wrong == (std::int64_t{1} << 62) && route != "asample") continue;  // right, though its turn never comes
        const std::string error = error_of(route, body);
        if (error.empty()) continue;
        ++refused;
        const Json::json_pointer parent = path.parent_pointer();
        named += error.find(path.back()) != std::string::npos || (!parent.empty() && error.find(parent.back()) != std::string::npos);
      }
    Json left_out = right;
    for (const auto& [name, value] : right.items()) {
      left_out.erase(name);
      error_of(route, left_out);
    }
  }
  EXPECT_GT(refused, 500);
  EXPECT_GT(named, refused * 8 / 10) << named << " of " << refused << " errors name the field, or the one around it";
  // The model still trains: nothing of that has broken it.
  const Outcome step = api.bench.result(api.bench.batch(api.model, ++counters_["seq_id"], training_batch(1, 2), HostileApi::owner()), HostileApi::owner());
  EXPECT_FALSE(step.failed()) << step.message;
}

// An answer has a few copies of its message.
TEST_F(HostileBodies, AnErrorRepeatsLittleOfWhatWasSent) {
  const std::map<std::string, std::string> names{
      {"session_heartbeat", "session_id"}, {"create_sampling_session", "session_id"}, {"get_info", "model_id"},
      {"asample", "sampling_session_id"},  {"weights_info", "tinker_path"},           {"retrieve_future", "request_id"}};
  std::size_t asked = 0;
  for (const auto& [route, right] : right_bodies()) {
    const auto name = names.find(route);
    if (name == names.end()) continue;
    Json body = right;
    body[name->second] = std::string(1 << 20, 'a');
    const ApiResponse answer = api.ask(route, text_of(body));
    EXPECT_GE(answer.status, 400) << route;
    EXPECT_LT(answer.body.size(), std::size_t{50'000}) << route;  // three copies of a message of 16,384 bytes
    ++asked;
  }
  EXPECT_EQ(asked, names.size());
}

TEST_F(HostileBodies, WhatStaysOfTheControlPlaneHasASize) {
  const auto make = [&](const std::string& kind, const std::string& id, const Json& body) {
    ApiRequest request{"POST", "/v1/accounts/local/" + kind, id, "application/json", body.dump()};
    request.headers.emplace_back("x-api-key", "k");
    const auto recorder = std::make_shared<Recorder>();
    api.routes.handle(std::move(request), recorder);
    return recorder->json().dump();
  };
  const std::string text(4096, 'x'), longer = text + "x";
  EXPECT_NE(make("rlorTrainerJobs", "rlorTrainerJobId=j", {{"displayName", longer}}).find("displayName has 4097 bytes, allowed are 4096"), std::string::npos);
  for (const char* field : {"description", "deploymentShape", "hotLoadTrainerJob"})
    EXPECT_NE(make("deployments", "deploymentId=d", {{field, longer}}).find(fmt::format("{} has 4097 bytes, allowed are 4096", field)), std::string::npos);
  EXPECT_NE(make("checkpoints/c:promote", "", {{"output_model", "accounts/" + longer + "/models/m"}}).find("output_model has 4115 bytes, allowed are 4096"),
            std::string::npos);
  EXPECT_TRUE(api.bench.service->control().deployments.all(HostileApi::owner()).empty());
  EXPECT_NE(make("deployments", "deploymentId=d", {{"description", text}}).find("READY"), std::string::npos);
}

TEST_F(HostileBodies, AnyBytesAreAnswered) {
  RandomSequence draws(11, RandomStream::fuzz);
  for (const auto& [route, right] : right_bodies())
    for (int i = 0; i < 60; ++i) {
      std::string body = text_of(right);
      for (std::uint32_t n = 1 + draws.below(4); n > 0; --n) {
        const std::size_t at = draws.below(static_cast<std::uint32_t>(body.size()));
        switch (draws.below(4)) {
          case 0:
            body[at] = static_cast<char>(draws.below(256));
            break;
          case 1:
            body.erase(at, 1 + draws.below(8));
            break;
          case 2:
            body.insert(at, body.substr(at / 2, draws.below(12)));
            break;
          default:
            body.insert(at, 1, "\"{}[],:0-"[draws.below(9)]);
        }
      }
      const ApiResponse answer = api.ask(route, body, i % 5 == 0 ? "application/x-protobuf" : "application/json");
      EXPECT_LT(answer.status, 500) << route << " " << body;
    }
  const ApiResponse answer = api.ask("session_heartbeat", text_of({{"session_id", "$S"}}));
  EXPECT_EQ(answer.status, 200) << answer.body;
}

#ifndef __SANITIZE_THREAD__  // work that is counted: nothing for ThreadSanitizer to see, and minutes under it

// Bodies of the other routes: nothing waits for their results.
std::vector<std::pair<std::string, Json>> control_bodies() {
  const Json input{{"op", "placeholder"}, {"name", "logprobs"}, {"target", "logprobs"}};
  const Json node{{"op", "call_function"}, {"name", "n"}, {"target", "torch.neg"}, {"args", {{{"ref", "logprobs"}}}}, {"kwargs", Json::object()}};
  const std::string account = "/v1/accounts/local/";
  return {
      {"create_custom_loss",
       {{"session_id", "$S"},
        {"custom_loss_seq_id", 0},
        {"name", "n"},
        {"inputs", {{{"name", "logprobs"}, {"rank", 1}}}},
        {"graph", {{"format", 1}, {"nodes", {input, node}}}}}},
      {"telemetry", {{"session_id", "$S"}, {"events", {{{"event", "e"}}}}, {"platform", "p"}}},
      {"retrieve_futures",
       {{"target", {{"type", "sampling_session"}, {"sampling_session_id", "none"}}}, {"retrieved_request_ids", Json::array({"r"})}, {"timeout", 0}}},
      {"cancel_future", {{"request_id", "r"}}},
      {"join_sampling_session", {{"sampling_session_id", "none"}}},
      {"load_adapter", {{"model_id", "none"}, {"seq_id", 1}, {"adapter_path", "a"}}},
      {"copy_weights", {{"session_id", "$S"}, {"model_seq_id", 0}, {"source_path", "tinker://x/weights/y"}}},
      {"sessions/none/finish", {{"detail", "d"}, {"reason", {{"type", "t"}, {"request_id", "r"}, {"request_type", "f"}}}}},
      {"PUT /api/v1/sessions/none/project", {{"project_id", "p"}}},
      {"POST " + account + "rlorTrainerJobs?rlorTrainerJobId=long", {{"displayName", "d"}, {"trainingConfig", {{"baseModel", "tiny"}, {"loraRank", 2}}}}},
      {"POST " + account + "deployments?deploymentId=long",
       {{"baseModel", "tiny"}, {"deploymentShape", "s"}, {"hotLoadTrainerJob", "j"}, {"description", "d"}}},
      {"PATCH " + account + "deployments/long?updateMask=description", {{"description", "d"}}},
      {"POST " + account + "checkpoints/c:promote", {{"output_model", "m"}, {"trainer_job_id", "j"}, {"base_model", "tiny"}}},
      {"POST /hot_load/v1/models/hot_load", {{"identity", "i"}}},
  };
}

TEST_F(HostileBodies, ALongOneIsSoonAnswered) {
  std::vector<std::pair<std::string, Json>> all = right_bodies();
  for (auto& one : control_bodies()) all.push_back(std::move(one));
  const std::string number = R"("custom_loss_seq_id":0)";  // one that was told already is not read again
  int losses = 0;
  for (const auto& [route, right] : all) {
    if (route.starts_with("forward")) continue;  // fireworks/json_batch_test.cpp
    expect_soon_answered(route, right, [&, &path = route](const std::string& body) {
      std::string text = with_ids(body);
      if (const std::size_t at = text.find(number); at != std::string::npos)
        text.replace(at, number.size(), fmt::format(R"("custom_loss_seq_id":{})", ++losses));
      EXPECT_LT(api.ask(path, text).status, 500) << path;
    });
  }
}

// The control: a route whose thread walks over all that came before, for each piece.
TEST_F(HostileBodies, WhatIsNotSoonAnsweredIsSeen) {
  api.routes.add({"POST", "/api/v1/planted", [this](ApiRequest& request, const std::shared_ptr<Responder>& out) {
                    const auto work = [out](ApiRequest& its) {
                      const double begin = processor_seconds();
                      volatile std::size_t sum = 0;
                      for (std::size_t i = 0; i < its.body.size() && processor_seconds() < begin + 1.2 * kSoon; i += 3)
                        for (std::size_t j = 0; j < i; j += 3) sum = sum + static_cast<std::size_t>(its.body[j]);
                      out->send({200, "application/json", "{}", {}});
                    };
                    api.routes.lanes().large.post(std::move(request), out, work, [](const std::exception& e) { return error_response(e); });
                  }});
  const std::string body = long_body({{"list", Json::array()}}, Json::json_pointer("/list"), "{}");
  EXPECT_GT(seconds_of_answer(body, [&](const std::string& text) { EXPECT_EQ(api.ask("planted", text).status, 200); }), kSoon);
}

#endif

}  // namespace
}  // namespace lockstep
