// Fields that would have no effect are refused, those that have one have it: nothing is taken with 200 and left out.
#include <gtest/gtest.h>

#include "api/api_test_tools.h"
#include "api/tinker/tinker_routes.h"
#include "base/hash.h"
#include "host/training_test_tools.h"

namespace lockstep {
namespace {

struct FieldApi {
  TrainingBench bench;
  Routes routes;
  std::string owner = "key-" + sha256_hex("k").substr(0, 24), session, model;
  std::int64_t number = 0;

  FieldApi() {
    add_tinker_routes(routes, bench.service);
    session = bench.session(owner);
    model = bench.model(session, 0, 2, owner);
  }
  Json ask(const std::string& method, const std::string& path, const Json& body = Json::object(), const std::string& query = "") {
    ApiRequest request{method, "/api/v1/" + path, query, "application/json", body.dump()};
    request.headers.emplace_back("x-api-key", "k");
    const auto recorder = std::make_shared<Recorder>();
    routes.handle(std::move(request), recorder);
    return recorder->json();
  }
  // Of an answer or of what it is the promise of; "" where all is well.
  std::string error_of(const Json& answer) {
    if (answer.contains("detail")) return answer["detail"];
    if (!answer.contains("request_id")) return "";
    return bench.result(answer["request_id"], owner).message;
  }
  std::string operation(const std::string& route, Json body) {
    body["model_id"] = model;
    body["seq_id"] = ++number;
    return error_of(ask("POST", route, body));
  }
};

TEST(TrainingFields, SavesSayWhatTheySave) {
  FieldApi api;
  const auto save = [&](Json body) { return api.operation("save_weights_for_sampler", std::move(body)); };
  EXPECT_EQ(save({{"path", "a"}, {"checkpoint_type", "base"}, {"export_precision", "source"}, {"kind", "snapshot"}}), "");
  EXPECT_EQ(save({{"path", "b"}, {"checkpoint_type", "full"}}), "checkpoint_type is 'full', allowed are base, delta and merged_base");
  EXPECT_EQ(save({{"path", "b"}, {"checkpoint_type", "base"}, {"export_precision", "bf16"}}),
            "export_precision is 'bf16', allowed is source: other precisions are for checkpoint_type merged_base");
  EXPECT_EQ(save({{"path", "b"}, {"kind", "inflight"}}), "kind is 'inflight' beside a path, allowed is snapshot: what has a name keeps its weights");
  EXPECT_EQ(save({{"kind", "live"}}), "kind is 'live', allowed are snapshot and inflight");
  EXPECT_EQ(save({{"kind", "inflight"}}), "");
  EXPECT_EQ(api.operation("save_weights", {{"path", "s"}, {"checkpoint_type", "delta"}}),
            "checkpoint_type is 'delta', allowed is none: only what save_weights_for_sampler saves has a type");
  EXPECT_EQ(api.operation("save_weights", {{"path", "s"}}), "");
  EXPECT_EQ(api.operation("save_weights", {{"path", "t"}, {"user_metadata", {{"a", std::string(20'000, 'a')}}}}),
            "user_metadata has 20008 bytes of JSON, allowed are 16384 (--metadata-kilobytes)");
}

TEST(TrainingFields, SettingsOfAStepAreKnownOrRefused) {
  FieldApi api;
  EXPECT_EQ(api.error_of(api.ask("POST", "forward_backward", {{"model_id", api.model}, {"seq_id", ++api.number}, {"forward_backward_input", Json::object()}}))
                .empty(),
            false);
  EXPECT_EQ(api.operation("optim_step", {{"adam_params", {{"learning_rate", 1e-3}, {"beta_1", 0.8}}}}),
            "adam_params.beta_1 is not known; did you mean 'beta1'?; allowed are learning_rate, beta1, beta2, eps, weight_decay, grad_clip_norm, "
            "emit_grad_norm_metrics");
  EXPECT_EQ(api.operation("optim_step", {{"adam_params", {{"learning_rate", 1e-3}, {"amsgrad", true}}}}).substr(0, 33), "adam_params.amsgrad is not known;");
  EXPECT_NE(api.operation("optim_step", {{"optimizer_params", {{"type", "dimuon"}, {"learning_rate", 1e-3}, {"beta2", 0.9}}}})
                .find("optimizer_params.beta2 is not known"),
            std::string::npos);
  EXPECT_NE(api.operation("optim_step", {{"adam_params", {{"learning_rate", 1e-3}}}, {"optimizer_params", {{"type", "dimuon"}, {"learning_rate", 1e-3}}}})
                .find("beside adam_params"),
            std::string::npos);
}

TEST(TrainingFields, AModelHasNoHeadThatIsNotThere) {
  FieldApi api;
  const Json wanted{{"session_id", api.session}, {"model_seq_id", 7}, {"base_model", "tiny"}, {"projection_head_dim", 128}};
  EXPECT_EQ(api.error_of(api.ask("POST", "create_model", wanted)), "projection_head_dim is 128, allowed is none: models have no projection head here");
  Json none = wanted;
  none["projection_head_dim"] = nullptr;
  none["lora_config"] = {{"rank", 2}};
  EXPECT_EQ(api.error_of(api.ask("POST", "create_model", none)), "");
  none["model_seq_id"] = 8;
  none["user_metadata"] = {{"a", std::string(20'000, 'a')}};
  EXPECT_NE(api.error_of(api.ask("POST", "create_model", none)).find("--metadata-kilobytes"), std::string::npos);
}

// Of two ways to call a route, the fields of the one are not taken and forgotten in the other.
TEST(TrainingFields, FieldsOfAnotherWayAreRefused) {
  FieldApi api;
  EXPECT_EQ(api.operation("save_weights", {{"path", "s"}}), "");
  const std::string source = "tinker://" + api.model + "/weights/s";
  EXPECT_EQ(api.operation("load_weights", {{"path", source}, {"lora_config", {{"rank", 4}}}}),
            "lora_config is given beside model_id, allowed is without: the model is there, and keeps its settings");
  EXPECT_EQ(api.operation("load_weights", {{"path", source}, {"session_id", nullptr}}), "");
  EXPECT_NE(api.error_of(api.ask("POST", "load_weights", {{"session_id", api.session}, {"model_seq_id", 9}, {"path", source}, {"seq_id", 4}}))
                .find("seq_id is given without model_id"),
            std::string::npos);
  EXPECT_NE(api.error_of(api.ask("POST", "copy_weights", {{"source_path", source}, {"model_seq_id", 9}})).find("model_seq_id is given without session_id"),
            std::string::npos);
}

TEST(TrainingFields, OfAPathToo) {
  FieldApi api;
  const auto said = [&](const std::string& path, const std::string& query) { return api.error_of(api.ask("GET", path, Json::object(), query)); };
  EXPECT_EQ(said("training_runs", "limit=1&offset=0&access_scope=accessible&project_id="), "");
  EXPECT_EQ(said("training_runs", "limt=1"), "unknown query parameter 'limt'; did you mean 'limit'?; allowed are limit, offset, project_id, access_scope");
  EXPECT_EQ(said("sessions", "access_scope=all"), "access_scope is 'all', allowed are owned and accessible");
  EXPECT_EQ(said("sessions/" + api.session, "limit=1"), "unknown query parameter 'limit'; allowed is access_scope");
  EXPECT_EQ(said("get_server_capabilities", "x=1"), "unknown query parameter 'x'; allowed is none");
}

TEST(TrainingFields, ACopyIsInItsProject) {
  FieldApi api;
  EXPECT_EQ(api.operation("save_weights", {{"path", "s"}}), "");
  const std::string source = "tinker://" + api.model + "/weights/s";
  const std::string copy = api.ask("POST", "copy_weights", {{"source_path", source}, {"destination_project_id", "proj-1"}})["tinker_path"];
  const auto runs = [&](const std::string& project) {
    std::vector<std::string> ids;
    const Json listed = api.ask("GET", "training_runs", Json::object(), "project_id=" + project);
    for (const Json& run : listed["training_runs"]) ids.push_back(run["training_run_id"]);
    return ids;
  };
  ASSERT_EQ(runs("proj-1").size(), 1u);
  EXPECT_EQ(copy, "tinker://" + runs("proj-1")[0] + "/weights/s");
  EXPECT_TRUE(runs("proj-2").empty());
  EXPECT_NE(api.error_of(api.ask("POST", "copy_weights",
                                 {{"source_path", source}, {"destination_project_id", "p"}, {"session_id", api.session}, {"model_seq_id", 9}}))
                .find("allowed is one of the two"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep
