// Many clients of the training API at once, through its routes: what each gets is what it gets alone, also when the service stops in
// the middle. Runs under ThreadSanitizer too (./check --tsan).
#include <gtest/gtest.h>

#include <thread>

#include "api/api_test_tools.h"
#include "api/fireworks/fireworks_routes.h"
#include "api/tinker/tinker_routes.h"
#include "host/training_test_tools.h"

namespace lockstep {
namespace {

struct TrainingApi {
  TrainingBench bench{{.tokens_a_step = 64, .sampler_bytes = 40'000}};
  Routes routes;
  TrainingApi() {
    add_tinker_routes(routes, bench.service);
    add_fireworks_routes(routes, bench.service, ShapeCatalog::published());
  }
};

class TrainingCaller {
 public:
  TrainingCaller(TrainingApi& api, std::string key) : api_(api), key_(std::move(key)) {}
  std::shared_ptr<Recorder> send(const std::string& method, const std::string& route, const Json& body) {
    ApiRequest request{method, "/api/v1/" + route, "", "application/json", body.is_null() ? "" : body.dump()};
    request.headers.emplace_back("x-api-key", key_);
    auto recorder = std::make_shared<Recorder>();
    api_.routes.handle(std::move(request), recorder);
    return recorder;
  }
  ApiResponse ask(const std::string& route, const Json& body, const std::string& method = "POST") { return send(method, route, body)->wait(); }
  // A 200 answer's field.
  std::string field(const std::string& route, const Json& body, const char* name) {
    const ApiResponse answer = ask(route, body);
    EXPECT_EQ(answer.status, 200) << route << " " << answer.body;
    return answer.status == 200 ? Json::parse(answer.body).value(name, "") : "";
  }
  // The result of what a route began, polled for; its bytes.
  std::string result(const std::string& request_id) {
    for (;;) {
      const ApiResponse answer = ask("retrieve_future", {{"request_id", request_id}});
      if (answer.status != 408) return answer.body;
    }
  }
  std::string begin(const std::string& route, const Json& body) { return field(route, body, "request_id"); }

 private:
  TrainingApi& api_;
  const std::string key_;
};

Json batch_json(const std::string& model, std::int64_t sequence, std::uint64_t seed, int count, const char* envelope = "forward_backward_input") {
  Json data = Json::array();
  for (const TrainingDatum& datum : training_batch(seed, count).data)
    data.push_back({{"model_input", {{"chunks", {{{"type", "encoded_text"}, {"tokens", datum.tokens}}}}}},
                    {"loss_fn_inputs", {{"target_tokens", {{"dtype", "int64"}, {"data", datum.inputs.at("target_tokens").integers}}}}}});
  return {{"model_id", model}, {"seq_id", sequence}, {envelope, {{"data", data}, {"loss_fn", "cross_entropy"}}}};
}

// One client's life: its results. Equal `seed` and `rank`, equal results, whoever else is there.
std::vector<std::string> live(TrainingApi& api, const std::string& key, std::uint64_t seed, std::int64_t rank, int rounds, const std::string& foreign) {
  std::vector<std::string> results;
  TrainingCaller client(api, key);
  const std::string session = client.field("create_session", {{"tags", Json::array()}}, "session_id");
  Json wanted{{"session_id", session}, {"model_seq_id", 0}, {"base_model", "tiny"}};
  if (rank > 0) wanted["lora_config"] = {{"rank", rank}, {"seed", 5}};
  const std::string model = Json::parse(client.result(client.begin("create_model", wanted))).at("model_id");
  std::int64_t sequence = 1;
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::string> ids(3);
    // The later chunks first, one of them twice.
    const std::uint64_t batch = seed * 100 + static_cast<std::uint64_t>(round) * 10;
    ids[1] = client.begin("forward_backward", batch_json(model, sequence + 1, batch + 1, 2));
    ids[2] = client.begin("forward", batch_json(model, sequence + 2, batch + 2, 3, "forward_input"));
    EXPECT_EQ(client.begin("forward_backward", batch_json(model, sequence + 1, batch + 1, 2)), ids[1]);
    ids[0] = client.begin("forward_backward", batch_json(model, sequence, batch, 2 + round % 3));
    ids.push_back(client.begin("optim_step", {{"model_id", model}, {"seq_id", sequence + 3}, {"adam_params", {{"learning_rate", 1e-2}}}}));
    const std::string sampler =
        client.begin("save_weights_for_sampler", {{"model_id", model}, {"seq_id", sequence + 4}, {"kind", round % 2 ? "snapshot" : "inflight"}});
    sequence += 5;
    client.send("POST", "retrieve_future", {{"request_id", ids[0]}})->abandon();  // a client that goes away
    for (const std::string& id : ids) results.push_back(client.result(id));
    const std::string snapshot = Json::parse(client.result(sampler)).at("sampling_session_id");
    results.push_back(client.result(client.begin("asample", {{"sampling_session_id", snapshot},
                                                             {"seq_id", round},
                                                             {"num_samples", 2},
                                                             {"prompt", {{"chunks", {{{"tokens", {1, 2, 3}}}}}}},
                                                             {"sampling_params", {{"max_tokens", 4}, {"seed", 1}, {"stop", Json::array()}}},
                                                             {"prompt_logprobs", true}})));
    client.ask("session_heartbeat", {{"session_id", session}});
    for (const char* route : {"training_runs", "checkpoints", "sessions"}) EXPECT_EQ(client.ask(route, nullptr, "GET").status, 200);
    if (!foreign.empty()) {
      EXPECT_EQ(client.ask("optim_step", {{"model_id", foreign}, {"seq_id", 1}}).status, 404);
      EXPECT_EQ(client.ask("retrieve_future", {{"request_id", foreign}}).status, 410);
    }
  }
  client.result(client.begin("save_weights", {{"model_id", model}, {"seq_id", sequence}, {"path", "end"}}));
  client.result(
      client.begin("load_weights", {{"model_id", model}, {"seq_id", sequence + 1}, {"path", "tinker://" + model + "/weights/end"}, {"optimizer", true}}));
  client.begin("forward_backward", batch_json(model, sequence + 3, 1, 2));  // its turn never comes
  client.result(client.begin("unload_model", {{"model_id", model}}));
  return results;
}

TEST(TrainingConcurrency, EachClientGetsWhatItGetsAlone) {
  constexpr int kClients = 6, kRounds = 3;
  const auto rank_of = [](int c) { return c == 0 ? 0 : 2 + 2 * (c % 3); };
  std::vector<std::vector<std::string>> alone(kClients), together(kClients);
  {
    TrainingApi api;
    for (int c = 0; c < kClients; ++c)
      alone[static_cast<std::size_t>(c)] = live(api, fmt::format("key-{}", c), static_cast<std::uint64_t>(c), rank_of(c), kRounds, "");
  }
  TrainingApi api;
  TrainingCaller other(api, "other");
  const std::string session = other.field("create_session", {{"tags", Json::array()}}, "session_id");
  const std::string foreign =
      Json::parse(
          other.result(other.begin("create_model", {{"session_id", session}, {"model_seq_id", 0}, {"base_model", "tiny"}, {"lora_config", {{"rank", 1}}}})))
          .at("model_id");
  std::vector<std::thread> threads;
  for (int c = 0; c < kClients; ++c)
    threads.emplace_back(
        [&, c] { together[static_cast<std::size_t>(c)] = live(api, fmt::format("key-{}", c), static_cast<std::uint64_t>(c), rank_of(c), kRounds, foreign); });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t c = 0; c < kClients; ++c) EXPECT_EQ(together[c], alone[c]) << "client " << c;
  EXPECT_NE(alone[1], alone[4]);  // the control: of equal rank, with other data
}

// The weights of snapshots that have no room in memory: read back for one caller while they go to disk again for another.
TEST(TrainingConcurrency, SnapshotsOnDiskAreReadByManyAtOnce) {
  TrainingBench bench{{.sampler_bytes = 1}};
  const std::string session = bench.session(), model = bench.model(session, 0, 2);
  std::vector<std::string> samplers;
  for (std::int64_t n = 1; n < 3; ++n)
    samplers.push_back(bench
                           .result(bench.service->operations().save_sampler("me", model, n, false,
                                                                            [](const SamplerRecord& r) {
                                                                              return Outcome{"text/plain", r.id, {}, {}};
                                                                            }))
                           .bytes);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 60; ++i) {
        const std::string& id = samplers[static_cast<std::size_t>(i % 2)];
        const SamplerWeights weights = bench.service->samplers().weights("me", id);
        EXPECT_TRUE(weights.adapter);
        EXPECT_EQ(bench.service->samplers().find("me", id).id, id);
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& id : samplers) EXPECT_TRUE(bench.service->samplers().find("me", id).spilled);  // or nothing was read back
}

// Whenever the service stops, every call has an answer, and what was acknowledged in order has its result.
TEST(TrainingConcurrency, AStopInTheMiddleAnswersEverybody) {
  for (const int delay : {5, 60}) {
    TrainingApi api;
    std::vector<std::thread> threads;
    for (int c = 0; c < 4; ++c)
      threads.emplace_back([&, c] {
        TrainingCaller client(api, fmt::format("key-{}", c));
        const ApiResponse session = client.ask("create_session", {{"tags", Json::array()}});
        if (session.status != 200) return;
        const std::string id = Json::parse(session.body).at("session_id");
        const ApiResponse made =
            client.ask("create_model", {{"session_id", id}, {"model_seq_id", 0}, {"base_model", "tiny"}, {"lora_config", {{"rank", 4}, {"seed", 1}}}});
        if (made.status != 200) return;
        std::vector<std::string> ids{Json::parse(made.body).at("request_id")};
        for (std::int64_t n = 1; n < 400; ++n) {
          const ApiResponse answer = client.ask("forward_backward", batch_json(id + ":train:0", n, static_cast<std::uint64_t>(n), 1));
          if (answer.status != 200) break;
          ids.push_back(Json::parse(answer.body).at("request_id"));
        }
        for (const std::string& request : ids) EXPECT_EQ(client.ask("retrieve_future", {{"request_id", request}}).status, 200);
      });
    std::this_thread::sleep_for(std::chrono::milliseconds(delay));
    api.bench.service->stop();
    for (std::thread& thread : threads) thread.join();
    TrainingCaller late(api, "late");
    EXPECT_NE(late.ask("create_session", {{"tags", Json::array()}}).status, 200);
  }
}

}  // namespace
}  // namespace lockstep
