#include "api/openai/openai_api.h"

#include <gtest/gtest.h>

#include <future>
#include <set>
#include <thread>

#include "api/api_test_tools.h"
#include "api/openai/token_routes.h"
#include "serving/loading.h"

namespace lockstep {
namespace {

class OpenAi : public testing::Test {
 protected:
  static std::shared_ptr<GenerationService> service() {
    static const auto one = std::make_shared<GenerationService>(serving_model(open_model({.model = LOCKSTEP_SOURCE_DIR "/models/countdown-glm", .threads = 2})),
                                                                ServingOptions{.max_open = 64});
    return one;
  }
  std::shared_ptr<Recorder> call(const std::string& method, const std::string& path, const std::string& body = "",
                                 const std::string& type = "application/json") {
    auto recorder = std::make_shared<Recorder>();
    routes_.handle({method, path, "", type, body}, recorder);
    return recorder;
  }
  std::shared_ptr<Recorder> complete(const std::string& fields) { return call("POST", "/v1/completions", R"({"model":"countdown-glm",)" + fields + "}"); }
  void SetUp() override { add_openai_routes(routes_, service()); }
  Routes routes_;
};

TEST_F(OpenAi, Routes) {
  const Json models = call("GET", "/v1/models")->json();
  EXPECT_EQ(models.at("object"), "list");
  EXPECT_EQ(models.at("data").at(0).at("id"), "countdown-glm");
  EXPECT_EQ(call("GET", "/v1/modelz")->wait().status, 404);
  EXPECT_NE(call("GET", "/v1/modelz")->wait().body.find("did you mean '/v1/models'?"), std::string::npos);
  const ApiResponse wrong = call("DELETE", "/v1/completions")->wait();
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at(0), (std::pair<std::string, std::string>{"Allow", "POST"}));
  EXPECT_EQ(call("POST", "/v1/completions", "{}", "text/plain")->wait().status, 415);
  EXPECT_EQ(call("POST", "/v1/completions", "{}", "Application/JSON; charset=utf-8")->wait().status, 400);
}

TEST_F(OpenAi, AnAnswerHasEverything) {
  const Json a = complete(R"("prompt":"3 7 12=48:","max_tokens":12,"seed":5,"logprobs":1,"n":2)")->json();
  EXPECT_EQ(a.at("object"), "text_completion");
  EXPECT_EQ(a.at("model"), "countdown-glm");
  EXPECT_EQ(a.at("seed"), 5);
  EXPECT_EQ(a.at("profile"), service()->model().profile_digest());
  EXPECT_EQ(a.at("weights_version"), 0);
  ASSERT_EQ(a.at("choices").size(), 2u);
  std::int64_t completion = 0;
  for (const Json& choice : a.at("choices")) {
    const std::size_t tokens = choice.at("token_ids").size();
    completion += static_cast<std::int64_t>(tokens);
    for (const char* list : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) EXPECT_EQ(choice.at("logprobs").at(list).size(), tokens);
    EXPECT_EQ(choice.at("sampling_logprobs").size(), tokens);
    EXPECT_EQ(choice.at("text"), service()->model().tokenizer().decode(choice.at("token_ids").get<std::vector<std::int32_t>>(), true));
    const std::string finish = choice.at("finish_reason");
    EXPECT_EQ(finish, choice.at("token_ids").back() == 102 ? "stop" : "length");
  }
  EXPECT_EQ(a.at("usage").at("completion_tokens"), completion);
  EXPECT_EQ(a.at("usage").at("prompt_tokens"), service()->model().tokenizer().encode("3 7 12=48:", true).size());
  // The same again, and by token ids.
  const Json again = complete(R"("prompt":"3 7 12=48:","max_tokens":12,"seed":5,"logprobs":1,"n":2)")->json();
  EXPECT_EQ(again.at("choices"), a.at("choices"));
  const Json ids = service()->model().tokenizer().encode("3 7 12=48:", true);
  EXPECT_EQ(complete(R"("max_tokens":12,"seed":5,"logprobs":1,"n":2,"prompt":)" + ids.dump())->json().at("choices"), a.at("choices"));
}

TEST_F(OpenAi, EqualPromptsGiveDifferentSamples) {
  const Json a = complete(R"("prompt":["3 7 12=48:","3 7 12=48:"],"n":4,"max_tokens":12,"seed":5,"temperature":2)")->json();
  ASSERT_EQ(a.at("choices").size(), 8u);
  std::set<std::string> texts;
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(a.at("choices").at(i).at("index"), i);
    texts.insert(a.at("choices").at(i).at("token_ids").dump());
  }
  EXPECT_GT(texts.size(), 4u);
}

TEST_F(OpenAi, WithoutASeedOneIsDrawnAndTold) {
  const Json a = complete(R"("prompt":"3 7 12=48:","max_tokens":8)")->json();
  const Json b = complete(R"("prompt":"3 7 12=48:","max_tokens":8,"seed":)" + a.at("seed").dump())->json();
  EXPECT_EQ(b.at("choices").at(0).at("text"), a.at("choices").at(0).at("text"));
  EXPECT_LT(a.at("seed").get<std::uint64_t>(), std::uint64_t{1} << 53);
}

TEST_F(OpenAi, StreamsAreTheWholeAnswerInParts) {
  for (const std::string stop : {"", R"(,"stop":",")", R"(,"stop":["=","zz"])"}) {
    const std::string fields = R"("prompt":["3 7 12=48:","1 2 3=6:"],"max_tokens":12,"seed":5,"logprobs":0,"n":2)" + stop;
    const Json whole = complete(fields)->json();
    const auto recorder = complete(fields + R"(,"stream":true,"stream_options":{"include_usage":true})");
    const ApiResponse& response = recorder->wait();
    EXPECT_EQ(response.content_type, "text/event-stream");
    std::vector<std::string> texts(4), finishes(4);
    std::vector<Json> ids(4, Json::array()), logprobs(4, Json::array());
    Json usage;
    for (const Json& json : stream_parts(response.body)) {
      if (json.contains("usage")) usage = json.at("usage");
      for (const Json& choice : json.at("choices")) {
        const auto i = choice.at("index").get<std::size_t>();
        texts[i] += choice.at("text").get<std::string>();
        for (const Json& id : choice.at("token_ids")) ids[i].push_back(id);
        for (const Json& value : choice.at("logprobs").at("token_logprobs")) logprobs[i].push_back(value);
        if (!choice.at("finish_reason").is_null()) finishes[i] = choice.at("finish_reason");
      }
    }
    usage.erase("prompt_tokens_details");  // the second of two finds more in the cache
    Json wanted = whole.at("usage");
    wanted.erase("prompt_tokens_details");
    EXPECT_EQ(usage, wanted);
    for (std::size_t i = 0; i < 4; ++i) {
      const Json& choice = whole.at("choices").at(i);
      EXPECT_EQ(texts[i], choice.at("text"));
      EXPECT_EQ(ids[i], choice.at("token_ids"));
      EXPECT_EQ(logprobs[i], choice.at("logprobs").at("token_logprobs"));
      EXPECT_EQ(finishes[i], choice.at("finish_reason"));
      const char never = stop.empty() ? '~' : stop.find('=') != std::string::npos ? '=' : ',';
      EXPECT_EQ(texts[i].find(never), std::string::npos);
    }
  }
}

TEST_F(OpenAi, RefusalsOfTheModelNameTheField) {
  const auto refusal = [&](const std::string& fields) {
    const auto recorder = complete(fields);
    const Json error = recorder->json().at("error");
    return fmt::format("{} {} {}", recorder->wait().status, error.at("param").dump(), error.at("code").get<std::string>());
  };
  EXPECT_EQ(refusal(R"("prompt":"a","max_tokens":100000)"), R"(400 "max_tokens" context_length_exceeded)");
  const auto longest = service()->limits().max_positions;
  const auto ids = [](std::int64_t count) { return "\"prompt\":" + Json(std::vector<std::int32_t>(static_cast<std::size_t>(count), 40)).dump(); };
  EXPECT_EQ(refusal(ids(longest + 1) + R"(,"max_tokens":0)"), R"(400 "prompt" context_length_exceeded)");
  EXPECT_EQ(refusal(ids(longest) + R"(,"max_tokens":1)"), R"(400 "max_tokens" context_length_exceeded)");
  EXPECT_NE(complete(ids(longest) + R"(,"max_tokens":1)")->wait().body.find(fmt::format("maximum context length is {} tokens", longest)), std::string::npos);
  EXPECT_EQ(complete(ids(longest) + R"(,"max_tokens":0)")->wait().status, 200);
  EXPECT_EQ(refusal(R"("prompt":[1,100000])"), R"(400 "prompt" invalid_argument)");
  EXPECT_EQ(refusal(R"("prompt":[[1],[100000]])"), R"(400 "prompt[1]" invalid_argument)");
  EXPECT_EQ(refusal(R"("prompt":"")"), R"(400 "prompt" invalid_argument)");
  EXPECT_EQ(refusal(R"("prompt":"a","stop_token_ids":[100000])"), R"(400 "stop_token_ids" invalid_argument)");
  EXPECT_EQ(refusal(R"("prompt":"a","logit_bias":{"100000":1})"), R"(400 "logit_bias" invalid_argument)");
  EXPECT_EQ(refusal(R"("prompt":"a","n":65)"), R"(400 "n" invalid_argument)");  // above the 64 of this service
  const auto other = call("POST", "/v1/completions", R"({"model":"countdown-gml","prompt":"a"})");
  EXPECT_EQ(other->wait().status, 404);
  EXPECT_EQ(other->json().at("error").at("code"), "model_not_found");
}

TEST_F(OpenAi, MaxTokensZeroAndSpecialStops) {
  const Json none = complete(R"("prompt":"1 2 3=6:","max_tokens":0)")->json();
  EXPECT_EQ(none.at("choices").at(0).at("text"), "");
  EXPECT_EQ(none.at("choices").at(0).at("finish_reason"), "length");
  EXPECT_EQ(none.at("usage").at("completion_tokens"), 0);
  const Json free = complete(R"("prompt":"3 7 12=48:","max_tokens":4,"temperature":0)")->json();
  const Json first = free.at("choices").at(0).at("token_ids").at(0);
  const Json stopped = complete(R"("prompt":"3 7 12=48:","max_tokens":4,"temperature":0,"stop_token_ids":[)" + first.dump() + "]")->json();
  EXPECT_EQ(stopped.at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(stopped.at("choices").at(0).at("token_ids").size(), 1u);
}

// Writing a long answer takes time that no stream of others should wait: the engine's thread goes on meanwhile.
TEST_F(OpenAi, ALongAnswerIsWrittenBesideTheEngine) {
  class Where : public Recorder {
   public:
    void send(ApiResponse response) override {
      thread = std::this_thread::get_id();
      Recorder::send(std::move(response));
    }
    std::thread::id thread;
  };
  std::promise<std::thread::id> engine;
  service()->snapshot([&](const ServiceSnapshot&) { engine.set_value(std::this_thread::get_id()); });
  const std::thread::id executor = engine.get_future().get();
  const auto written_by = [&](int n, int most) {
    const auto where = std::make_shared<Where>();
    routes_.handle({"POST", "/v1/completions", "", "application/json",
                    R"({"model":"countdown-glm","prompt":"3 7 12=48:","ignore_eos":true,"logprobs":20,"n":)" + std::to_string(n) + R"(,"max_tokens":)" +
                        std::to_string(most) + "}"},
                   where);
    EXPECT_EQ(where->json().at("choices").size(), static_cast<std::size_t>(n));
    return where->thread;
  };
  EXPECT_NE(written_by(16, 16), executor);
  EXPECT_EQ(written_by(1, 4), executor);  // not worth another thread's waking
}

TEST_F(OpenAi, OneAnswerHoldsSoManyTokens) {
  const auto ids = [](std::int64_t count) { return Json(std::vector<std::int32_t>(static_cast<std::size_t>(count), 40)); };
  const auto detokenize = [&](std::int64_t count) { return call("POST", "/v1/detokenize", Json{{"tokens", ids(count)}}.dump())->wait(); };
  EXPECT_EQ(detokenize(kMostTokens).status, 200);
  const ApiResponse more = detokenize(kMostTokens + 1);
  EXPECT_EQ(more.status, 400);
  EXPECT_EQ(Json::parse(more.body)["error"]["param"], "tokens");
  const std::string text(static_cast<std::size_t>(4 * kMostTokens), '7');
  const ApiResponse long_text = call("POST", "/v1/tokenize", Json{{"prompt", text}}.dump())->wait();
  EXPECT_EQ(long_text.status, 400);
  EXPECT_EQ(Json::parse(long_text.body)["error"]["param"], "prompt");
  const Json few = call("POST", "/v1/tokenize", R"({"prompt":"3 7","return_token_strs":true})")->json();
  EXPECT_EQ(few["count"], few["tokens"].size());
  EXPECT_EQ(few["token_strs"].size(), few["tokens"].size());
  EXPECT_EQ(few["tokens"], Json(service()->model().tokenizer().encode("3 7", true)));
}

// A token's text is what it says amid others: where a text begins, such decoders take a space away.
TEST_F(OpenAi, TokensOfASentencePieceTokenizer) {
  Json file = {{"version", "1.0"}, {"added_tokens", Json::array()}, {"normalizer", nullptr}, {"pre_tokenizer", nullptr}, {"post_processor", nullptr}};
  file["added_tokens"].push_back(
      {{"id", 0}, {"content", "</s>"}, {"single_word", false}, {"lstrip", false}, {"rstrip", false}, {"normalized", false}, {"special", true}});
  file["decoder"] = {{"type", "Sequence"},
                     {"decoders",
                      {{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
                       {{"type", "ByteFallback"}},
                       {{"type", "Fuse"}},
                       {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
  file["model"] = {
      {"type", "BPE"}, {"byte_fallback", true}, {"merges", Json::array()}, {"vocab", {{"</s>", 0}, {"\u2581hi", 1}, {"hi", 2}, {"<0xC3>", 3}, {"<0xA9>", 4}}}};
  ServingModel model = serving_model(open_model({.model = LOCKSTEP_SOURCE_DIR "/models/countdown-glm", .threads = 2}));
  model.tokenizer = std::make_shared<const Tokenizer>(Tokenizer::from_json(file.dump()));
  model.name = "pieces";
  Routes routes;
  add_openai_routes(routes, std::make_shared<GenerationService>(std::move(model), ServingOptions{}));
  const auto answer = [&](const std::string& fields) {
    auto recorder = std::make_shared<Recorder>();
    routes.handle({"POST", "/v1/completions", "", "application/json", R"({"model":"pieces","temperature":0,"ignore_eos":true,"logprobs":0,)" + fields + "}"},
                  recorder);
    return recorder->json().at("choices").at(0);
  };
  const std::string only = R"("max_tokens":3,"logit_bias":{"1":100})";
  Json a = answer(R"("prompt":[1,1],)" + only);
  EXPECT_EQ(a.at("text"), " hi hi hi");
  EXPECT_EQ(a.at("logprobs").at("tokens"), Json({" hi", " hi", " hi"}));
  EXPECT_EQ(a.at("logprobs").at("text_offset"), Json({0, 3, 6}));
  a = answer(R"("prompt":[1,1],"echo":true,)" + only);
  EXPECT_EQ(a.at("text"), "hi hi hi hi hi");
  EXPECT_EQ(a.at("logprobs").at("text_offset"), Json({0, 2, 5, 8, 11}));
  // A character that the prompt begins and the answer ends.
  a = answer(R"("prompt":[2,3],"echo":true,"max_tokens":1,"logit_bias":{"4":100})");
  EXPECT_EQ(a.at("text"), "hi\u00e9");
  EXPECT_EQ(a.at("logprobs").at("tokens"), Json({"hi", "\ufffd", "\ufffd"}));
  a = answer(R"("prompt":[2,3],"echo":true,"max_tokens":0)");
  EXPECT_EQ(a.at("text"), "hi\ufffd");
}

TEST_F(OpenAi, EchoBeginsWithThePrompt) {
  const std::string fields = R"("prompt":["3 7 12=48:","1 2 3=6:"],"max_tokens":6,"seed":5,"logprobs":2,"n":2)";
  const Json plain = complete(fields)->json(), echo = complete(fields + R"(,"echo":true,"return_token_ids":true)")->json();
  for (std::size_t i = 0; i < 4; ++i) {
    const Json& a = plain.at("choices").at(i);
    const Json& b = echo.at("choices").at(i);
    const std::string prompt = i < 2 ? "3 7 12=48:" : "1 2 3=6:";
    EXPECT_EQ(b.at("text"), prompt + a.at("text").get<std::string>());
    EXPECT_EQ(b.at("token_ids"), a.at("token_ids"));
    EXPECT_EQ(b.at("sampling_logprobs"), a.at("sampling_logprobs"));
    const std::size_t before = b.at("prompt_token_ids").size(), after = a.at("token_ids").size();
    EXPECT_EQ(b["prompt_token_ids"], Json(service()->model().tokenizer().encode(prompt, true)));
    const Json& lists = b.at("logprobs");
    for (const char* list : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) EXPECT_EQ(lists.at(list).size(), before + after);
    EXPECT_TRUE(lists["token_logprobs"][0].is_null() && lists["top_logprobs"][0].is_null());
    std::string text;
    for (std::size_t j = 0; j < before + after; ++j) {
      EXPECT_EQ(lists["text_offset"][j], text.size());
      if (j < before || j + 1 < before + after) text += lists["tokens"][j].get<std::string>();
    }
    for (std::size_t j = 0; j < after; ++j) EXPECT_EQ(lists["token_logprobs"][before + j], a.at("logprobs").at("token_logprobs")[j]);
    // A prompt's log-probability is what sampling that token would have said.
    const Json forced =
        complete(R"("prompt":)" + Json(service()->model().tokenizer().encode(prompt.substr(0, 1), true)).dump() +
                 R"(,"max_tokens":1,"logprobs":0,"ignore_eos":true,"logit_bias":{")" + b["prompt_token_ids"][1].dump() + R"(":100},"temperature":0)")
            ->json()
            .at("choices")
            .at(0);
    ASSERT_EQ(forced.at("token_ids").at(0), b["prompt_token_ids"][1]);
    EXPECT_EQ(forced.at("logprobs").at("token_logprobs").at(0), lists["token_logprobs"][1]);
  }
  // Scoring alone.
  const Json scored = complete(R"("prompt":"3 7 12=48:","max_tokens":0,"echo":true,"logprobs":0)")->json().at("choices").at(0);
  EXPECT_EQ(scored.at("text"), "3 7 12=48:");
  const Json& with_answer = echo["choices"][0]["logprobs"]["token_logprobs"];
  EXPECT_EQ(scored.at("logprobs").at("token_logprobs"),
            Json(std::vector<Json>(with_answer.begin(), with_answer.begin() + static_cast<std::ptrdiff_t>(echo["choices"][0]["prompt_token_ids"].size()))));
  // In a stream too, with and without log-probabilities.
  for (const std::string more : {R"(,"logprobs":1)", ""}) {
    const std::string same = R"("prompt":["3 7 12=48:","1 2 3=6:"],"max_tokens":6,"seed":5,"echo":true)" + more;
    const Json whole = complete(same)->json();
    std::vector<std::string> texts(2);
    std::vector<Json> logprobs(2, Json::array());
    for (const Json& part : stream_parts(complete(same + R"(,"stream":true)")->wait().body))
      for (const Json& choice : part.at("choices")) {
        const auto i = choice.at("index").get<std::size_t>();
        texts[i] += choice.at("text").get<std::string>();
        if (!more.empty())
          for (const Json& value : choice.at("logprobs").at("token_logprobs")) logprobs[i].push_back(value);
      }
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(texts[i], whole.at("choices").at(i).at("text"));
      if (!more.empty()) {
        EXPECT_EQ(logprobs[i], whole["choices"][i]["logprobs"]["token_logprobs"]);
      }
    }
  }
}

TEST_F(OpenAi, AnAbandonedRequestEnds) {
  const auto recorder = complete(R"("prompt":"3 7 12=48:","max_tokens":480,"temperature":100,"n":32,"seed":1)");
  recorder->abandon();
  recorder->wait();
  for (int i = 0; i < 1000 && service()->bounds().open() > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(service()->bounds().open(), 0);
}

TEST_F(OpenAi, AFullServiceSays429) {
  const auto first = complete(R"("prompt":"3 7 12=48:","max_tokens":480,"temperature":100,"n":60,"seed":1)");
  const auto second = complete(R"("prompt":"3 7 12=48:","n":60)");
  EXPECT_EQ(second->wait().status, 429);
  EXPECT_EQ(second->json().at("error").at("type"), "rate_limit_error");
  first->abandon();
  first->wait();
}

}  // namespace
}  // namespace lockstep
