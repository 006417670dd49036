// Hundreds of requests of all kinds, alone and all at once on a cache that is too small for them: the same answers. Runs under
// ThreadSanitizer too.
#include <gtest/gtest.h>

#include <thread>

#include "api/api_test_tools.h"
#include "api/openai/openai_api.h"
#include "base/philox.h"
#include "serving/loading.h"
#include "serving/served_defaults.h"

namespace lockstep {
namespace {

constexpr int kRequests = 600, kThreads = 6;

struct Asked {
  std::string path, body;
};

Json random_request(RandomSequence& draws, bool chat, std::uint64_t seed) {
  const char* prompts[] = {"3 7 12=48:", "3 7 12=48:3*", "1 2 3=6:", "25 4 2 10=90:", "3 7 12 and a long story that goes on for many more pages:"};
  Json r{{"model", "chatty"}, {"seed", seed}, {"max_tokens", 1 + draws.below(40)}, {"return_token_ids", true}};
  const std::string prompt = prompts[draws.below(5)];
  if (chat) r["messages"] = Json::array({{{"role", "user"}, {"content", prompt}}});
  else r["prompt"] = prompt;
  constexpr double kTemperatures[] = {0, 0.7, 1, 1.5};
  r["temperature"] = kTemperatures[draws.below(4)];
  if (draws.below(3) == 0) r["n"] = 1 + draws.below(3);
  if (draws.below(4) == 0) r["top_k"] = 1 + draws.below(20);
  if (draws.below(4) == 0) r["top_p"] = 0.9;
  if (draws.below(4) == 0) r["min_p"] = 0.05;
  if (draws.below(4) == 0) r["frequency_penalty"] = 0.5;
  if (draws.below(5) == 0) r["logit_bias"] = {{"7", 3}, {"102", -100}};
  if (draws.below(4) == 0) r["stop"] = Json::array({"1", "=4"});
  if (draws.below(5) == 0) r["min_tokens"] = 1;
  if (draws.below(2) == 0) r["ignore_eos"] = true;
  if (chat && draws.below(3) == 0) {
    r["logprobs"] = true;
    r["top_logprobs"] = draws.below(4);
  }
  if (!chat && draws.below(2) == 0) {
    r["logprobs"] = draws.below(4);
    r["echo"] = draws.below(2) == 0;
  }
  if (draws.below(6) == 0)
    r["response_format"] = Json::parse(
        R"({"type":"json_schema","json_schema":{"name":"x","schema":
          {"type":"object","properties":{"a":{"type":"integer"},"b":{"enum":["x",null]}},"required":["a","b"]}}})");
  else if (chat && draws.below(6) == 0)
    r.update(Json::parse(
        R"({"tools":[{"type":"function","function":{"name":"add","parameters":
          {"type":"object","properties":{"a":{"enum":[1,2,3]}},"required":["a"]}}}],"tool_choice":"required","max_tokens":60})"));
  if (r.contains("tools")) r.erase("stop");  // refused beside strict ones
  if (chat && draws.below(5) == 0) r["chat_template_kwargs"] = {{"enable_thinking", true}};
  if (draws.below(2) == 0) {
    r["stream"] = true;
    r["stream_options"] = {{"include_usage", true}};
  }
  return r;
}

// A part of a choice added to what came before: texts and lists grow, the rest is replaced.
void merge(Json& into, const Json& part) {
  for (const auto& [name, value] : part.items()) {
    Json& old = into[name];
    if (value.is_null() && !old.is_null()) continue;
    if (old.is_null() || name == "index" || name == "role") old = value;
    else if (name == "tool_calls")
      for (const Json& call : value) {
        Json* known = nullptr;
        for (Json& one : old)
          if (one["index"] == call["index"]) known = &one;
        if (known) merge(*known, call);
        else old.push_back(call);
      }
    else if (old.is_string()) old = old.get<std::string>() + value.get<std::string>();
    else if (old.is_array()) old.insert(old.end(), value.begin(), value.end());
    else if (old.is_object()) merge(old, value);
    else old = value;
  }
}

// An answer without what may differ: its id, its time, and what the cache happened to hold.
std::string canonical(const ApiResponse& response) {
  Json whole;
  if (response.content_type == "text/event-stream") {
    whole = {{"choices", Json::object()}};
    for (const Json& part : stream_parts(response.body)) {
      for (const auto& [name, value] : part.items())
        if (name != "choices" && !value.is_null()) whole[name] = value;
      for (const Json& choice : part.at("choices")) merge(whole["choices"][choice.at("index").dump()], choice);
    }
    // In the order of the choices, not of their first parts.
    whole["choices"] = Json(nlohmann::json(whole["choices"]));
  } else {
    whole = Json::parse(response.body);
  }
  whole.erase("id");
  whole.erase("created");
  if (whole.contains("usage")) whole["usage"].erase("prompt_tokens_details");
  return fmt::format("{} {}", response.status, nlohmann::json(whole).dump());
}

// Which answers are not the same.
std::vector<std::size_t> differences(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i]) all.push_back(i);
  return all;
}

struct Server {
  std::shared_ptr<GenerationService> service;
  Routes routes;

  Server(const OpenedModel& opened, const std::string& folder, const EngineOptions& engine) {
    ServingModel model = serving_model(opened);
    add_chat(model, folder);
    model.name = "chatty";
    service = std::make_shared<GenerationService>(std::move(model), ServingOptions{.engine = engine, .max_open = 4096});
    add_openai_routes(routes, service);
  }
  std::shared_ptr<Recorder> ask(const Asked& asked) {
    auto recorder = std::make_shared<Recorder>();
    routes.handle({"POST", asked.path, "", "application/json", asked.body}, recorder);
    return recorder;
  }
};

TEST(Concurrency, AllAtOnceAnswerAsEachAlone) {
  const ChatFolder folder;
  std::vector<Asked> all;
  std::vector<std::string> alone;
  RandomSequence draws(2026, RandomStream::fuzz);
  for (int i = 0; i < kRequests; ++i) {
    const bool chat = draws.below(2) == 0;
    all.push_back({chat ? "/v1/chat/completions" : "/v1/completions", random_request(draws, chat, 1000 + static_cast<std::uint64_t>(i)).dump()});
  }
  const OpenedModel opened = open_model({.model = folder.path(), .threads = 2});
  {
    Server server(opened, folder.path(), {});
    for (const Asked& asked : all) {
      alone.push_back(canonical(server.ask(asked)->wait()));
      EXPECT_TRUE(alone.back().starts_with("200")) << asked.body << "\n" << alone.back();
    }
    // The control: other noise gives other answers, and the comparison sees it.
    int hot = 0, changed = 0;
    for (std::size_t i = 0; i < 40; ++i) {
      Json body = Json::parse(all[i].body);
      if (body["temperature"] == 0 || body["max_tokens"] < 10) continue;
      body["seed"] = body["seed"].get<int>() + 1;
      Json expected = Json::parse(alone[i].substr(4));
      expected["seed"] = body["seed"];
      ++hot;
      changed += canonical(server.ask({all[i].path, body.dump()})->wait()) != "200 " + nlohmann::json(expected).dump();
    }
    EXPECT_GT(hot, 5);
    EXPECT_GT(changed, hot / 2);
  }

  Server server(opened, folder.path(), {.page_size = 4, .cache_pages = 160, .max_batch_rows = 48, .max_sequences = 64, .prefill_chunk = 7});
  std::vector<std::string> together(all.size());
  std::atomic<int> cancelled{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      RandomSequence mine(static_cast<std::uint64_t>(t), RandomStream::fuzz);
      std::vector<std::pair<std::size_t, std::shared_ptr<Recorder>>> open;
      const auto take = [&] {
        for (auto& [i, recorder] : open) together[i] = canonical(recorder->wait());
        open.clear();
      };
      for (std::size_t i = static_cast<std::size_t>(t); i < all.size(); i += kThreads) {
        if (mine.below(4) == 0) {  // a neighbour in the batch, cancelled in the middle
          const auto leaver =
              server.ask({"/v1/completions", R"({"model":"chatty","prompt":"3 7 12=48:","max_tokens":400,"ignore_eos":true,"stream":true,"n":2})"});
          leaver->wait_begun();
          leaver->abandon();
          ++cancelled;
        }
        open.emplace_back(i, server.ask(all[i]));
        if (mine.below(3) == 0) open.back().second->lag(1 << 20);
        if (mine.below(8) == 0) std::this_thread::sleep_for(std::chrono::microseconds(mine.below(3000)));
        if (open.size() > 20) take();
      }
      take();
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::size_t i : differences(alone, together)) ADD_FAILURE() << all[i].body << "\nalone    " << alone[i] << "\ntogether " << together[i];

  // Every path that could have made a difference did run.
  const EngineCounters counters = server.service->counters();
  EXPECT_GT(counters.preemptions, 0);
  EXPECT_GT(counters.evictions, 0);
  EXPECT_GT(counters.cache_hit_tokens, 0);
  EXPECT_GT(counters.chunks, 0);
  EXPECT_GT(counters.mixed_batches, 0);
  EXPECT_GT(cancelled, 10);
  for (int i = 0; i < 2000 && server.service->bounds().open() > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(server.service->bounds().open(), 0);
  // The comparison finds one wrong digit.
  std::vector<std::string> planted = together;
  planted[7].back() = '!';
  EXPECT_EQ(differences(alone, planted), std::vector<std::size_t>{7});
}

}  // namespace
}  // namespace lockstep
