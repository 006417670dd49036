// No answer to a client names a folder of the server: every route that there is, with right and wrong ids, and what fails because files are
// damaged, gone or in the way.
#include <gtest/gtest.h>

#include <fstream>

#include "api/api_test_tools.h"
#include "api/fireworks/fireworks_routes.h"
#include "api/openai/openai_api.h"
#include "api/page/page_routes.h"
#include "api/tinker/tinker_routes.h"
#include "base/hash.h"
#include "host/training_test_tools.h"
#include "serving/loading.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

struct SilentServer {
  TrainingBench bench;
  Routes routes;
  std::string owner = "key-" + sha256_hex("k").substr(0, 24), session, model, sampler;
  fs::path runs = bench.folder / "runs";
  bool from_this_machine = false;
  int asked = 0;

  SilentServer() {
    fs::create_directories(runs / "one");
    std::ofstream(runs / "one/config.json") << Json{{"model", (bench.folder / "model").string()}, {"steps", "3"}}.dump();
    std::ofstream(runs / "one/metrics.jsonl") << "{\"step\":1,\"loss\":2.5}\n";
    bench.base->folder = (bench.folder / "model").string();
    bench.base->folders = {bench.base->folder};
    bench.base->opened.tokenizer = open_model({.model = LOCKSTEP_SOURCE_DIR "/models/countdown-glm", .threads = 1}).tokenizer;
    add_openai_routes(routes, bench.generation);
    add_tinker_routes(routes, bench.service);
    add_fireworks_routes(routes, bench.service, ShapeCatalog::published());
    add_page_routes(routes, {.places = {.roots = {runs}}, .title = "tiny", .playground = true});
    session = bench.session(owner);
    model = bench.model(session, 0, 2, owner);
    sampler = bench.service->samplers().create(owner, session, 0, "tiny", "");
  }
  void silent(const std::string& text, const std::string& what) {
    ++asked;
    for (const std::string& secret : {bench.folder.string(), fs::temp_directory_path().string() + "/", std::string(LOCKSTEP_SOURCE_DIR)})
      EXPECT_EQ(text.find(secret), std::string::npos) << what << "\n" << text.substr(0, 2000);
  }
  Json ask(const std::string& method, const std::string& path, const std::string& body = "{}") {
    ApiRequest request{method, path, "", "application/json", body};
    request.headers = {{"x-api-key", "k"}, {"host", "localhost"}};
    request.from_this_machine = from_this_machine;
    const auto recorder = std::make_shared<Recorder>();
    routes.handle(std::move(request), recorder);
    const ApiResponse answer = recorder->wait();
    const std::string what = method + " " + path + " " + body.substr(0, 200);
    silent(std::string(answer.bytes()), what);
    for (const auto& [name, value] : answer.headers) silent(value, what);
    const Json json = Json::parse(answer.bytes(), nullptr, false);
    return json.is_object() ? json : Json::object();
  }
  // Of an operation: the message of its failure, which there must be.
  std::string failure(const std::string& route, Json body, std::int64_t number) {
    body["model_id"] = model;
    body["seq_id"] = number;
    const Json answer = ask("POST", "/api/v1/" + route, body.dump());
    if (!answer.contains("request_id")) return answer.dump();
    ask("POST", "/api/v1/retrieve_future", Json{{"request_id", answer["request_id"]}}.dump());
    const Outcome outcome = bench.result(answer["request_id"], owner);
    EXPECT_TRUE(outcome.failed()) << route;
    silent(outcome.message, route);
    return outcome.message;
  }
};

TEST(ServerPaths, NoRouteTellsAFolder) {
  SilentServer server;
  const std::string known = server.ask("GET", "/nothing-of-that-name")["error"]["message"];
  std::vector<std::string> paths;
  for (std::size_t at = known.find("known are ") + 10, end = 0; at < known.size(); at = end + 2) {
    end = std::min(known.find(", ", at), known.size());
    paths.push_back(known.substr(at, end - at));
  }
  ASSERT_GT(paths.size(), 80u);
  const Json tensor{{"dtype", "int64"}, {"data", {2, 3, 4}}, {"shape", {3}}};
  const Json everything{{"session_id", server.session},
                        {"model_id", server.model},
                        {"seq_id", 1 << 20},
                        {"base_model", "nobody"},
                        {"path", "x"},
                        {"model", "nobody"},
                        {"prompt", {1, 2}},
                        {"max_tokens", 1},
                        {"messages", {{{"role", "user"}, {"content", "a"}}}},
                        {"sampling_session_id", server.sampler},
                        {"request_id", "req-x"},
                        {"lora_name", "a"},
                        {"lora_path", "../x"},
                        {"text", "a"},
                        {"source_path", "tinker://x/weights/y"},
                        {"adapter_path", "accounts/local/models/x"},
                        {"output_model", "accounts/local/models/x"},
                        {"identity", "x"}};
  for (const std::string& path : paths)
    for (const auto& [id, other] : {std::pair(server.model, std::string("one")), std::pair(std::string("x"), server.session)}) {
      std::string filled;
      for (std::size_t i = 0, parameters = 0; i < path.size();) {
        if (path[i] != '{') {
          filled += path[i++];
          continue;
        }
        filled += parameters++ % 2 == 0 ? id : other;
        i = path.find('}', i) + 1;
      }
      if (filled.ends_with("/retrieve_futures")) continue;  // waits
      for (const char* method : {"GET", "POST", "PUT", "DELETE"})
        for (const std::string& body : {std::string("{}"), everything.dump()}) server.ask(method, filled, body);
    }
  EXPECT_GT(server.asked, 1000);
  EXPECT_NE(server.ask("GET", "/api/runs/one")["config"]["model"].get<std::string>().find(".../model"), std::string::npos);
}

TEST(ServerPaths, AClientOnTheSameMachineAloneIsToldTheModelsFolder) {
  SilentServer server;
  const auto tokenizer_of = [&] {
    return server.ask("POST", "/api/v1/get_info", Json{{"model_id", server.model}}.dump())["model_data"]["tokenizer_id"].get<std::string>();
  };
  EXPECT_EQ(tokenizer_of(), "tiny");
  ApiRequest request{"POST", "/api/v1/get_info", "", "application/json", Json{{"model_id", server.model}}.dump()};
  request.headers = {{"x-api-key", "k"}};
  request.from_this_machine = true;
  const auto told = [&](ApiRequest one) {
    const auto recorder = std::make_shared<Recorder>();
    server.routes.handle(std::move(one), recorder);
    return recorder->json()["model_data"]["tokenizer_id"].get<std::string>();
  };
  EXPECT_EQ(told(request), server.bench.base->folder);
  request.headers.emplace_back("x-forwarded-for", "203.0.113.9");  // a proxy here that asks for somebody elsewhere
  EXPECT_EQ(told(request), "tiny");
}

TEST(ServerPaths, NorWhatFailsBecauseOfFiles) {
  SilentServer server;
  std::int64_t number = 0;
  const auto done = [&](const std::string& request) { return server.bench.result(request, server.owner); };
  const auto path_of = [](const CheckpointRecord& r) { return Outcome{"text/plain", r.path(), {}, {}}; };
  const std::string state = done(server.bench.service->operations().save(server.owner, server.model, ++number, {.name = "state"}, path_of)).bytes;
  const std::string weights =
      done(server.bench.service->operations().save(server.owner, server.model, ++number, {.kind = "sampler_weights", .name = "weights"}, path_of)).bytes;
  ASSERT_FALSE(state.empty() || weights.empty());
  // Cut off, then gone.
  for (const auto& entry : fs::recursive_directory_iterator(server.bench.folder / "checkpoints"))
    if (entry.path().extension() == ".safetensors") fs::resize_file(entry.path(), entry.file_size() / 2);
  const std::string cut = server.failure("load_weights", {{"path", state}}, ++number);
  EXPECT_NE(cut.find("..."), std::string::npos) << cut;  // the file is named, and where it lies is not
  server.failure("load_adapter", {{"adapter_path", weights}}, ++number);
  server.ask("POST", "/inference/v1/completions",
             Json{{"model", "accounts/local/trainingSamplers/checkpoints/weights"}, {"prompt", {1, 2}}, {"max_tokens", 1}}.dump());
  server.ask("POST", "/v1/accounts/local/checkpoints/weights:promote", Json{{"output_model", "accounts/local/models/m"}}.dump());
  fs::remove_all(server.bench.folder / "checkpoints");
  server.failure("load_weights", {{"path", state}}, ++number);
  // A file where a folder should be.
  std::ofstream(server.bench.folder / "checkpoints") << "in the way";
  const std::string in_the_way = server.failure("save_weights", {{"path", "other"}}, ++number);
  EXPECT_NE(in_the_way.find(".../other"), std::string::npos) << in_the_way;
  std::ofstream(server.bench.folder / "adapters") << "in the way";
  server.failure("load_adapter", {{"adapter_path", "accounts/local/models/x"}}, ++number);
}

}  // namespace
}  // namespace lockstep
