#include <gtest/gtest.h>

#include <future>
#include <set>
#include <thread>

#include "api/api_test_tools.h"
#include "api/body_budget.h"
#include "api/openai/answer_run.h"
#include "api/openai/native_parser.h"
#include "api/openai/openai_api.h"
#include "api/openai/response_answer.h"
#include "serving/chat_prompt.h"
#include "serving/loading.h"
#include "serving/served_defaults.h"

namespace lockstep {
namespace {

class OpenAiChat : public testing::Test {
 protected:
  static std::shared_ptr<GenerationService> service() {
    static const ChatFolder folder;
    static const auto one = [] {
      ServingModel model = serving_model(open_model({.model = folder.path(), .threads = 2}));
      add_chat(model, folder.path());
      model.name = "chatty";
      return std::make_shared<GenerationService>(std::move(model), ServingOptions{.max_open = 64});
    }();
    return one;
  }
  std::shared_ptr<Recorder> call(const std::string& path, const std::string& body) {
    auto recorder = std::make_shared<Recorder>();
    routes_.handle({"POST", path, "", "application/json", body}, recorder);
    return recorder;
  }
  std::shared_ptr<Recorder> chat(const std::string& fields) { return call("/v1/chat/completions", R"({"model":"chatty",)" + fields + "}"); }
  static std::string user(const std::string& text) { return R"("messages":[{"role":"user","content":)" + Json(text).dump() + "}]"; }
  void SetUp() override { add_openai_routes(routes_, service()); }
  Routes routes_;
};

// What a client makes of a stream's parts: the message that the whole answer has.
struct Gathered {
  Json message = {{"role", nullptr}, {"content", ""}}, logprobs = Json::array(), ids = Json::array(), finish;
};
std::vector<Gathered> gather(const std::vector<Json>& parts, std::size_t choices) {
  std::vector<Gathered> all(choices);
  for (const Json& part : parts)
    for (const Json& choice : part.at("choices")) {
      Gathered& g = all.at(choice.at("index").get<std::size_t>());
      const Json& delta = choice.at("delta");
      // The role comes with the first part and with no other.
      EXPECT_EQ(delta.contains("role"), g.message.at("role").is_null());
      EXPECT_TRUE(g.finish.is_null());
      if (delta.contains("role")) g.message["role"] = delta["role"];
      for (const char* text : {"content", "reasoning_content"})
        if (delta.contains(text)) g.message[text] = g.message.value(text, "") + delta[text].get<std::string>();
      if (!choice.at("logprobs").is_null())
        for (const Json& token : choice["logprobs"].at("content")) g.logprobs.push_back(token);
      if (choice.contains("token_ids"))
        for (const Json& id : choice["token_ids"]) g.ids.push_back(id);
      g.finish = choice.at("finish_reason");
    }
  return all;
}

TEST_F(OpenAiChat, AnAnswerHasEverything) {
  const Json a = chat(user("3 7 12=48:") + R"(,"max_tokens":12,"seed":5,"logprobs":true,"top_logprobs":3,"n":2,"return_token_ids":true)")->json();
  ASSERT_FALSE(a.contains("error")) << a.dump();
  EXPECT_EQ(a.at("object"), "chat.completion");
  EXPECT_TRUE(a.at("id").get<std::string>().starts_with("chatcmpl-"));
  EXPECT_EQ(a.at("model"), "chatty");
  EXPECT_EQ(a.at("seed"), 5);
  EXPECT_EQ(a.at("profile"), service()->model().profile_digest());
  EXPECT_EQ(a.at("weights_version"), 0);
  EXPECT_EQ(a.at("system_fingerprint"), "fp_" + service()->model().profile_digest() + "_0");
  ASSERT_EQ(a.at("choices").size(), 2u);
  std::int64_t completion = 0;
  for (const Json& choice : a.at("choices")) {
    const std::size_t tokens = choice.at("token_ids").size();
    completion += static_cast<std::int64_t>(tokens);
    EXPECT_EQ(choice.at("message").at("role"), "assistant");
    ASSERT_EQ(choice.at("logprobs").at("content").size(), tokens);
    for (std::size_t i = 0; i < tokens; ++i) {
      const Json& token = choice["logprobs"]["content"][i];
      EXPECT_LE(token.at("logprob").get<double>(), 0);
      ASSERT_EQ(token.at("top_logprobs").size(), 3u);
      EXPECT_GE(token["top_logprobs"][0].at("logprob").get<double>(), token["top_logprobs"][1].at("logprob").get<double>());
      std::string bytes;
      for (const Json& byte : token.at("bytes")) bytes += static_cast<char>(byte.get<int>());
      EXPECT_EQ(bytes, service()->model().tokenizer().token_bytes(choice["token_ids"][i].get<std::int32_t>()));
    }
  }
  EXPECT_EQ(a.at("usage").at("completion_tokens"), completion);
  EXPECT_EQ(a.at("usage").at("prompt_tokens"), a.at("prompt_token_ids").size());
  // The same again by the ids that came out: nothing is tokenised again.
  const Json again = chat(R"("prompt_token_ids":)" + a["prompt_token_ids"].dump() +
                          R"(,"max_tokens":12,"seed":5,"logprobs":true,"top_logprobs":3,"n":2,"return_token_ids":true)")
                         ->json();
  EXPECT_EQ(again.at("choices"), a.at("choices"));
  const Json ids = call("/v1/tokenize", R"({"model":"chatty",)" + user("3 7 12=48:") + "}")->json();
  EXPECT_EQ(ids.at("tokens"), a.at("prompt_token_ids"));
  EXPECT_EQ(ids.at("count"), ids.at("tokens").size());
}

TEST_F(OpenAiChat, StreamsAreTheWholeAnswerInParts) {
  for (const std::string more :
       {"", R"(,"stop":"1")", R"(,"logprobs":true,"top_logprobs":2,"return_token_ids":true)", R"(,"chat_template_kwargs":{"enable_thinking":true})"}) {
    const std::string fields = user("3 7 12=48:") + R"(,"max_tokens":30,"seed":7,"n":3)" + more;
    const Json whole = chat(fields)->json();
    ASSERT_FALSE(whole.contains("error")) << whole.dump();
    const std::vector<Json> parts = stream_parts(chat(fields + R"(,"stream":true,"stream_options":{"include_usage":true})")->wait().body);
    ASSERT_GT(parts.size(), 3u);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      EXPECT_EQ(parts[i].at("object"), "chat.completion.chunk");
      EXPECT_EQ(parts[i].at("usage").is_null(), i + 1 < parts.size());
    }
    EXPECT_TRUE(parts.back().at("choices").empty());
    EXPECT_EQ(parts.back().at("usage").at("completion_tokens"), whole.at("usage").at("completion_tokens"));
    EXPECT_EQ(parts.back().at("usage").at("completion_tokens_details"), whole.at("usage").at("completion_tokens_details"));
    const std::vector<Gathered> all = gather(parts, 3);
    for (std::size_t i = 0; i < 3; ++i) {
      Json message = whole.at("choices").at(i).at("message");
      message.erase("refusal");
      EXPECT_EQ(nlohmann::json(all[i].message), nlohmann::json(message));
      EXPECT_EQ(all[i].finish, whole["choices"][i].at("finish_reason"));
      if (!whole["choices"][i].at("logprobs").is_null()) {
        EXPECT_EQ(all[i].logprobs, whole["choices"][i]["logprobs"].at("content"));
        EXPECT_EQ(all[i].ids, whole["choices"][i].at("token_ids"));
      }
    }
  }
}

// What a model that calls tools would say, by a grammar of that one text.
TEST_F(OpenAiChat, CallsInTheModelsOwnFormat) {
  const std::string said = "<think>hm</think>So: <tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call><tool_call>none\n</tool_call>";
  const auto grammar = service()->model().grammars().of_part(GrammarPart::literal(said));
  const Json tools = Json::parse(R"([{"type":"function","function":{"name":"add","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}},
                                     {"type":"function","function":{"name":"none"}}])");
  const auto answer = [&](bool stream) {
    AnswerOrder order;
    order.completion.prompts.push_back({service()->model().tokenizer().encode("a", true), "messages"});
    order.model = "chatty";
    order.completion.sampling.seed = 3;
    order.stream = stream;
    order.completion.special = SpecialText::shown;
    order.completion.make_constraint = [&] { return make_constraint(grammar); };
    order.make_parser = [&] { return std::make_unique<NativeParser>(MessageFormat::glm, std::make_shared<const ArgumentTypes>(tools), false); };
    const auto recorder = std::make_shared<Recorder>();
    auto writer = std::make_unique<ChatWriter>(service()->model().tokenizer(), order.shape);
    std::make_shared<AnswerRun>(service(), std::move(order), std::move(writer), recorder)->start();
    return recorder->wait().body;
  };
  const Json whole = Json::parse(answer(false)).at("choices").at(0);
  EXPECT_EQ(whole.at("finish_reason"), "tool_calls");
  const Json& message = whole.at("message");
  EXPECT_EQ(message.at("reasoning_content"), "hm");
  EXPECT_EQ(message.at("content"), "So:");
  ASSERT_EQ(message.at("tool_calls").size(), 2u);
  EXPECT_EQ(message["tool_calls"][0].at("function"), Json::parse(R"({"name":"add","arguments":"{\"a\": 1}"})"));
  EXPECT_EQ(message["tool_calls"][1].at("function").at("name"), "none");
  EXPECT_NE(message["tool_calls"][0].at("id"), message["tool_calls"][1].at("id"));
  // The same in parts.
  Json calls = Json::array();
  for (const Json& part : stream_parts(answer(true)))
    for (const Json& choice : part.at("choices"))
      for (const Json& call : choice.at("delta").value("tool_calls", Json::array())) {
        if (call.at("index").get<std::size_t>() == calls.size()) {
          calls.push_back(call);
          calls.back().erase("index");
        } else {
          Json& arguments = calls.at(call["index"].get<std::size_t>()).at("function").at("arguments");
          arguments = arguments.get<std::string>() + call.at("function").at("arguments").get<std::string>();
        }
      }
  EXPECT_EQ(calls, message["tool_calls"]);
}

TEST_F(OpenAiChat, ALaggingClientGetsTheSameInFewerParts) {
  const std::string fields = user("3 7 12=48:") + R"(,"max_tokens":60,"ignore_eos":true,"seed":7,"return_token_ids":true)";
  const Json whole = chat(fields)->json();
  const auto recorder = std::make_shared<Recorder>();
  recorder->lag(1 << 20);
  routes_.handle({"POST", "/v1/chat/completions", "", "application/json", R"({"model":"chatty","stream":true,)" + fields + "}"}, recorder);
  const std::vector<Json> parts = stream_parts(recorder->wait().body);
  EXPECT_EQ(parts.size(), 1u);
  EXPECT_EQ(gather(parts, 1)[0].ids, whole.at("choices").at(0).at("token_ids"));
  EXPECT_EQ(gather(parts, 1)[0].message.at("content"), whole["choices"][0].at("message").at("content"));
}

TEST_F(OpenAiChat, TheContextIsTheDefaultLimit) {
  const Json a = chat(user("3 7 12=48:") + R"(,"ignore_eos":true,"seed":1)")->json();
  const std::int64_t context = service()->limits().max_positions;
  EXPECT_EQ(a.at("usage").at("total_tokens"), context);
  EXPECT_EQ(a.at("choices").at(0).at("finish_reason"), "length");
  const auto full = chat(user(std::string(600, 'x')));
  EXPECT_EQ(full->wait().status, 400);
  EXPECT_EQ(full->json().at("error").at("param"), "messages");
  EXPECT_EQ(full->json().at("error").at("code"), "context_length_exceeded");
  const auto greedy = chat(user("a") + R"(,"max_completion_tokens":100000)");
  EXPECT_EQ(greedy->json().at("error").at("param"), "max_completion_tokens");
}

// Tools and a format together: the answer is calls in the family's way, or JSON of the format, and the sampled text says which.
TEST_F(OpenAiChat, AnAnswerOfAFormatOrCalls) {
  const Json tools = Json::parse(R"([{"type":"function","function":{"name":"add","parameters":{"type":"object",
    "properties":{"a":{"enum":[1,2,3]},"s":{"type":"string","maxLength":4}},"required":["a","s"]}}}])");
  const Json format = Json::parse(R"({"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object",
    "properties":{"total":{"enum":[7,"<tool_call>"]}},"required":["total"]}}})");
  int calls = 0, answers = 0;
  for (int seed = 0; seed < 40; ++seed) {
    // Both beginnings are likely.
    const std::string fields = user("3 7 12=48:") + R"(,"max_tokens":200,"temperature":5,"seed":)" + std::to_string(seed) +
                               R"(,"return_token_ids":true,"response_format":)" + format.dump() + R"(,"tools":)" + tools.dump();
    const Json choice = chat(fields)->json().at("choices").at(0);
    const Json& message = choice.at("message");
    const std::string said = service()->model().tokenizer().decode(choice.at("token_ids").get<std::vector<std::int32_t>>(), true);
    if (choice.at("finish_reason") == "tool_calls") {
      ++calls;
      EXPECT_TRUE(said.starts_with("<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>")) << said;
      EXPECT_TRUE(message.at("content").is_null()) << said;
      const Json arguments = Json::parse(message.at("tool_calls").at(0).at("function").at("arguments").get<std::string>());
      EXPECT_TRUE(arguments.at("a").is_number_integer() && arguments.at("s").is_string()) << said;
    } else if (choice.at("finish_reason") == "stop") {
      ++answers;
      EXPECT_EQ(message.at("content"), said);
      EXPECT_FALSE(message.contains("tool_calls"));
      EXPECT_TRUE(Json::parse(said).contains("total")) << said;
    }
  }
  EXPECT_GT(calls, 0);
  EXPECT_GT(answers, 0);
}

// Whose calls can only be a list cannot tell them from an answer that is one.
TEST_F(OpenAiChat, AFormatThatCallsCannotBeToldFrom) {
  ServingModel model = serving_model(open_model({.model = LOCKSTEP_SOURCE_DIR "/models/countdown-glm", .threads = 2}));
  model.chat_template =
      std::make_shared<const ChatTemplate>(ChatTemplate::from_source("{% if tools %}tools{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}"));
  model.name = "chatty";
  Routes routes;
  add_openai_routes(routes, std::make_shared<GenerationService>(std::move(model), ServingOptions{}));
  const auto ask = [&](const std::string& schema) {
    const auto recorder = std::make_shared<Recorder>();
    routes.handle({"POST", "/v1/chat/completions", "", "application/json",
                   R"({"model":"chatty",)" + user("3 7=") +
                       R"(,"max_tokens":120,"seed":4,"tools":[{"type":"function","function":{"name":"f"}}],)"
                       R"("response_format":{"type":"json_schema","json_schema":{"name":"x","schema":)" +
                       schema + "}}}"},
                  recorder);
    return recorder;
  };
  EXPECT_EQ(ask(R"({"type":"object"})")->wait().status, 200);
  const auto refused = ask(R"({"type":"array"})");
  EXPECT_EQ(refused->wait().status, 400);
  EXPECT_EQ(refused->json().at("error").at("param"), "response_format");
}

// parallel_tool_calls false where the model chooses: the answer ends with the first call.
TEST_F(OpenAiChat, OneCallEndsTheAnswer) {
  const std::string call = "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>";
  const auto grammar = service()->model().grammars().of_part(GrammarPart::literal("So: " + call + "\n" + call + "!"));
  const auto types = std::make_shared<const ArgumentTypes>(
      Json::parse(R"([{"type":"function","function":{"name":"add","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}}])"));
  const auto answer = [&](bool one_call) {
    AnswerOrder order;
    order.completion.prompts.push_back({service()->model().tokenizer().encode("a", true), "messages"});
    order.model = "chatty";
    order.completion.special = SpecialText::shown;
    order.completion.make_constraint = [&] { return make_constraint(grammar); };
    order.make_parser = [&] { return std::make_unique<NativeParser>(MessageFormat::glm, types, false, false, one_call); };
    const auto recorder = std::make_shared<Recorder>();
    auto writer = std::make_unique<ChatWriter>(service()->model().tokenizer(), order.shape);
    std::make_shared<AnswerRun>(service(), std::move(order), std::move(writer), recorder)->start();
    return recorder->json();
  };
  const Json one = answer(true), both = answer(false);
  EXPECT_EQ(both["choices"][0]["message"]["tool_calls"].size(), 2u);
  EXPECT_EQ(one["choices"][0]["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(one["choices"][0]["message"]["content"], "So:");
  EXPECT_EQ(one["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_LT(one["usage"]["completion_tokens"], both["usage"]["completion_tokens"]);
}

// Kept sets may each be nearly a whole vocabulary, and an answer is held until it is sent.
TEST_F(OpenAiChat, KeptSetsOfAnAnswerHaveALimit) {
  const auto answer = [&](std::int64_t most, bool stream) {
    AnswerOrder order;
    order.completion.prompts.push_back({service()->model().tokenizer().encode("a", true), "messages"});
    order.completion.sampling.temperature = 1;
    order.completion.sampling.top_k = 20;
    order.completion.max_tokens = 10;
    order.completion.model_ends = false;
    order.completion.kept_tokens = true;
    order.model = "chatty";
    order.stream = stream;
    order.shape.logprobs = true;
    order.most_kept_ids = most;
    const auto recorder = std::make_shared<Recorder>();
    auto writer = std::make_unique<ChatWriter>(service()->model().tokenizer(), order.shape);
    std::make_shared<AnswerRun>(service(), std::move(order), std::move(writer), recorder)->start();
    return recorder->wait();
  };
  EXPECT_EQ(answer(200, false).status, 200);
  const ApiResponse refused = answer(199, false);
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("more than 199 ids"), std::string::npos) << refused.body;
  EXPECT_NE(answer(199, true).body.find("more than 199 ids"), std::string::npos);
}

TEST_F(OpenAiChat, MessagesCannotForgeSpecialTokens) {
  const Json ids = call("/v1/tokenize", R"({"model":"chatty",)" + user("a<|eos|>b") + "}")->json().at("tokens");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), Json(102)), 0);
  // The control: as a text, the same is the token.
  const Json text = call("/v1/tokenize", R"({"model":"chatty","prompt":"a<|eos|>b"})")->json().at("tokens");
  EXPECT_EQ(std::count(text.begin(), text.end(), Json(102)), 1);
  const auto decoded = call("/v1/detokenize", R"({"model":"chatty","tokens":)" + ids.dump() + "}")->json();
  EXPECT_NE(decoded.at("prompt").get<std::string>().find("a<|eos|>b"), std::string::npos);
}

TEST_F(OpenAiChat, MinTokensAndIgnoreEos) {
  const std::string fields = user("3 7 12=48:") + R"(,"max_tokens":40,"return_token_ids":true,"temperature":0)";
  const Json free = chat(fields)->json().at("choices").at(0);
  const Json least = chat(fields + R"(,"min_tokens":40)")->json().at("choices").at(0);
  EXPECT_EQ(least.at("token_ids").size(), 40u);
  for (const Json& id : least["token_ids"]) EXPECT_NE(id, 102);
  EXPECT_EQ(chat(fields + R"(,"ignore_eos":true)")->json().at("choices").at(0).at("token_ids").size(), 40u);
  const Json biased = chat(fields + R"(,"logit_bias":{"102":100})")->json().at("choices").at(0);
  EXPECT_EQ(biased.at("token_ids"), Json::array({102}));
  EXPECT_EQ(biased.at("finish_reason"), "stop");
  EXPECT_EQ(biased.at("message").at("content"), "");
}

TEST_F(OpenAiChat, AModelWithoutATemplateSaysSo) {
  Routes routes;
  const auto plain = std::make_shared<GenerationService>(serving_model(open_model({.model = LOCKSTEP_SOURCE_DIR "/models/countdown-glm", .threads = 1})));
  add_openai_routes(routes, plain);
  const auto recorder = std::make_shared<Recorder>();
  routes.handle({"POST", "/v1/chat/completions", "", "application/json", R"({"model":"countdown-glm",)" + user("a") + "}"}, recorder);
  EXPECT_EQ(recorder->wait().status, 400);
  EXPECT_NE(recorder->json().at("error").at("message").get<std::string>().find("chat template"), std::string::npos);
  const auto models = std::make_shared<Recorder>();
  routes.handle({"GET", "/v1/models/countdown-glm"}, models);
  EXPECT_EQ(models->json().at("chat"), false);
  const auto chatty = std::make_shared<Recorder>();
  routes_.handle({"GET", "/v1/models/chatty"}, chatty);
  EXPECT_EQ(chatty->json().at("chat"), true);
  EXPECT_EQ(chatty->json().at("max_model_len"), service()->limits().max_positions);
  const auto other = std::make_shared<Recorder>();
  routes_.handle({"GET", "/v1/models/chaty"}, other);
  EXPECT_EQ(other->wait().status, 404);
}

// Notes on which thread it is told.
class ThreadRecorder : public Recorder {
 public:
  void send(ApiResponse response) override {
    thread_ = std::this_thread::get_id();
    Recorder::send(std::move(response));
  }
  std::thread::id thread() {
    wait();
    return thread_;
  }

 private:
  std::atomic<std::thread::id> thread_{};
};

// Talks that were kept may be megabytes, and the server's own thread is everybody's.
TEST_F(OpenAiChat, AKeptTalkIsReadOnNoThreadOfTheServer) {
  const Json first = call("/v1/responses", R"({"model":"chatty","input":"3 7 12=48:","max_output_tokens":4,"seed":1})")->json();
  ASSERT_TRUE(first.contains("id")) << first.dump();
  const std::string id = first["id"];
  const auto ask = [&](const std::string& method, const std::string& path, const std::string& body) {
    const auto recorder = std::make_shared<ThreadRecorder>();
    routes_.handle({method, path, "", "application/json", body}, recorder);
    return recorder;
  };
  const auto items = ask("GET", "/v1/responses/" + id + "/input_items", "");
  EXPECT_NE(items->thread(), std::this_thread::get_id());
  EXPECT_EQ(items->json().at("data").size(), 1u);
  // What is wrong with it is told where it was read.
  const auto wrong = ask("POST", "/v1/responses", R"({"model":"chatty","previous_response_id":")" + id + R"(","input":5})");
  EXPECT_NE(wrong->thread(), std::this_thread::get_id());
  EXPECT_EQ(wrong->wait().status, 400);
  // The talk goes on from what was kept.
  const Json next = call("/v1/responses", R"({"model":"chatty","input":"and?","max_output_tokens":4,"seed":1,"previous_response_id":")" + id + "\"}")->json();
  EXPECT_EQ(next.at("previous_response_id"), id);
  EXPECT_GT(next.at("usage").at("input_tokens"), first.at("usage").at("input_tokens"));
  EXPECT_EQ(ask("GET", "/v1/responses/" + id, "")->json(), first);
}

// A body of a few bytes may name megabytes.
TEST_F(OpenAiChat, AKeptTalkIsOnTheAccountOfWhoeverGoesOnFromIt) {
  const auto kept = std::make_shared<StoredResponses>();
  Json talk = Json::array();
  for (int i = 0; i < 20'000; ++i) talk.push_back({{"role", "user"}, {"content", "x"}});
  kept->put("", "resp_1", {"{}", {}, talk.dump()});
  const ResponseAnswers answers(service(), kept, std::make_shared<HeldStreams>());
  const auto lease = std::make_shared<BodyBudget>(std::int64_t{64} << 20, 100)->lease("a");
  // What is wrong with it is found behind the talk.
  const ApiRequest request{"POST", "/v1/responses", "", "application/json", R"({"model":"chatty","previous_response_id":"resp_1","input":5})"};
  const ClientWork scope(nullptr, lease);
  EXPECT_THROW(answers.create(request, std::make_shared<Recorder>(), std::nullopt), RequestError);
  EXPECT_GT(lease->bytes(), std::int64_t{4} << 20);
}

// As texts: reading them all for one would take many times their memory. The second is no JSON, and is told as it stands.
TEST_F(OpenAiChat, ItemsOfATalkAreToldAsTheyStand) {
  const auto kept = std::make_shared<StoredResponses>();
  kept->put("", "resp_1", {"{}", {{"a", R"({"id":"a"})"}, {"b", "{b}"}, {"c", R"({"id":"c"})"}}, "[]"});
  const ResponseAnswers answers(service(), kept, std::make_shared<HeldStreams>());
  const auto page = [&](const std::string& query) {
    ApiRequest request{"GET", "/v1/responses/resp_1/input_items", query, "", ""};
    request.parameters.emplace_back("response_id", "resp_1");
    return answers.input_items(request).body;
  };
  EXPECT_EQ(page("order=asc&limit=2"), R"({"object":"list","data":[{"id":"a"},{b}],"first_id":"a","last_id":"b","has_more":true})");
  EXPECT_EQ(page("order=asc&after=b"), R"({"object":"list","data":[{"id":"c"}],"first_id":"c","last_id":"c","has_more":false})");
  EXPECT_EQ(page("limit=1"), R"({"object":"list","data":[{"id":"c"}],"first_id":"c","last_id":"c","has_more":true})");
  EXPECT_EQ(page("after=a"), R"({"object":"list","data":[],"first_id":null,"last_id":null,"has_more":false})");
  EXPECT_THROW(page("after=d"), RequestError);
}

TEST_F(OpenAiChat, WhatARequestHoldsIsCountedUntilItsAnswer) {
  const auto budget = std::make_shared<BodyBudget>(std::int64_t{64} << 20, 100);
  Json tools = Json::array();
  for (int t = 0; t < 32; ++t) {
    Json properties = Json::object();
    for (int i = 0; i < 500; ++i) properties[fmt::format("a property with a long name, number {}", i)] = {{"type", "string"}};
    tools.push_back({{"type", "function"}, {"name", fmt::format("f{}", t)}, {"parameters", {{"type", "object"}, {"properties", properties}}}});
  }
  const Json body{{"model", "chatty"}, {"input", "3 7 12=48:"},    {"tools", tools},  {"tool_choice", "none"},
                  {"store", false},    {"max_output_tokens", 400}, {"temperature", 0}};
  const std::string text = body.dump();
  ASSERT_GT(text.size(), std::size_t{900'000});
  const auto ask = [&] {
    ApiRequest request{"POST", "/v1/responses", "", "application/json", text};
    request.lease = budget->lease("a");
    request.lease->settle(text.size());
    const auto recorder = std::make_shared<Recorder>();
    routes_.handle(std::move(request), recorder);
    return recorder;
  };
  std::promise<void> begun, go_on;
  const auto gate = go_on.get_future().share();
  // The engine stands still while requests come in.
  service()->snapshot([&](const ServiceSnapshot&) { begun.set_value(), gate.wait(); });
  begun.get_future().wait();
  std::vector<std::shared_ptr<Recorder>> asked;
  for (int i = 0; i < 3; ++i) asked.push_back(ask());
  for (int i = 0; i < 5000 && service()->bounds().open() < 3; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(service()->bounds().open(), 3) << (asked[0]->told() ? std::string(asked[0]->wait().bytes()) : "");
  // Bodies and trees of values are gone; what the answers will repeat, and the types of the tools' arguments, are there.
  for (int i = 0; i < 5000 && budget->bytes() > static_cast<std::int64_t>(6 * 3 * text.size()); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_GE(budget->bytes(), static_cast<std::int64_t>(3 * text.size()));
  std::vector<std::shared_ptr<Recorder>> more;
  for (int i = 0; i < 20; ++i) more.push_back(ask());
  int refused = 0;
  for (int i = 0; i < 5000 && service()->bounds().open() + refused < 23; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    refused = 0;
    for (const auto& one : more) refused += one->told();
  }
  EXPECT_GT(refused, 0);
  EXPECT_LE(budget->bytes(), budget->most_bytes());
  go_on.set_value();
  for (const auto& one : asked) EXPECT_EQ(one->wait().status, 200);
  for (const auto& one : more) EXPECT_TRUE(one->wait().status == 200 || one->wait().status == 429 || one->wait().status == 413) << one->wait().body;
  asked.clear(), more.clear();
  for (int i = 0; i < 5000 && budget->bytes() > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(budget->bytes(), 0);
}

}  // namespace
}  // namespace lockstep
