// The work of each wire's reader grows with the length of a body, whatever it is full of: eight times the bytes are about eight times the work
// (base/growth_test_tools.h). Readers of training bodies have theirs beside them (fireworks/json_batch_test.cpp, tinker/proto_codec_test.cpp),
// JSON itself in base/bounded_json_test.cpp. That the other routes answer long bodies soon is asked of them as they stand (body_time_test_tools.h).
#include <gtest/gtest.h>

#include "api/errors.h"
#include "api/fireworks/completion_request.h"
#include "api/openai/chat_request.h"
#include "api/openai/completion_request.h"
#include "api/openai/response_request.h"
#include "base/growth_test_tools.h"

namespace lockstep {
namespace {
#ifndef __SANITIZE_THREAD__  // work that is counted on one thread: nothing for ThreadSanitizer to see, and minutes under it

using MakeBody = std::function<std::string(std::size_t)>;

// `one` again and again, %d of it being its number; between them commas.
MakeBody list_body(const std::string& begin, const std::string& one, const std::string& end) {
  return [=](std::size_t size) {
    std::string text = begin;
    for (int i = 0; i == 0 || text.size() < size; ++i) {
      const std::size_t number = one.find("%d");
      text += (i ? "," : "") + (number == std::string::npos ? one : one.substr(0, number) + std::to_string(i) + one.substr(number + 2));
    }
    return text + end;
  };
}
MakeBody text_body(const std::string& begin, const std::string& piece, const std::string& end) {
  return [=](std::size_t size) {
    std::string text = begin;
    while (text.size() < size) text += piece;
    return text + end;
  };
}

using Bodies = std::vector<std::pair<const char*, MakeBody>>;

// Refused or taken, it ends in time.
template <class F>
void expect_linear(const Bodies& bodies, const F& decode) {
  // An object may have 4,000 keys: the longer of the two is refused for them before it is read, the shorter is not.
  constexpr std::size_t kBytes = 20'000, kBytesOfKeys = 2'500;
  for (const auto& [name, make] : bodies) {
    const auto read = [&](const std::string& body) {
      try {
        decode(body);
      } catch (const Error&) {  // a RequestError, too
      }
    };
    for (const std::size_t bytes : {kBytes, kBytesOfKeys}) EXPECT_LT(growth(make, read, bytes), kLinearGrowth) << name << ", from " << bytes << " bytes";
  }
}

const std::string kTalk = R"({"model":"m","messages":[{"role":"user","content":"hi"}],)";

// What chat and completions have in common: fields whose values are lists or objects of any length.
Bodies shared_bodies(const std::string& begin) {
  return {{"stop strings", list_body(begin + R"("stop":[)", R"("s%d")", "]}")},
          {"one long stop string", text_body(begin + R"("stop":")", "ab", "\"}")},
          {"biases", list_body(begin + R"("logit_bias":{)", R"("%d":1)", "}}")},
          {"a schema's properties", list_body(begin + R"("response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"properties":{)",
                                              R"("p%d":{"type":"string"})", "}}}}}")},
          {"a prediction", text_body(begin + R"("prediction":{"type":"content","content":")", "abc ", "\"}}")},
          {"names that nobody knows", list_body(begin, R"("x%d":1)", "}")},
          {"one long name", text_body(begin + "\"", "x", "\":1}")},
          {"a user", text_body(begin + R"("user":")", "u", "\"}")}};
}

TEST(ReadersGrowth, Chat) {
  Bodies bodies = shared_bodies(kTalk);
  const std::string messages = R"({"model":"m","messages":[)";
  const Bodies more = {
      {"messages", list_body(messages, R"({"role":"user","content":"hi %d"})", "]}")},
      {"one long message", text_body(messages + R"({"role":"user","content":")", "word ", "\"}]}")},
      {"parts of one message", list_body(messages + R"({"role":"user","content":[)", R"({"type":"text","text":"%d"})", "]}]}")},
      {"calls of one message", list_body(messages + R"({"role":"assistant","tool_calls":[)",
                                         R"({"id":"c%d","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}})", "]}]}")},
      {"answers of tools",
       list_body(messages + R"({"role":"assistant","tool_calls":[{"id":"c0","type":"function","function":{"name":"f","arguments":"{}"}}]},)",
                 R"({"role":"tool","tool_call_id":"c%d","content":"1"})", "]}")},
      {"long arguments of a call",
       text_body(messages + R"({"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":\")", "ab",
                 R"(\"}"}}]}]})")},
      {"arguments that are none",
       text_body(messages + R"({"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":")", "[", R"("}}]}]})")},
      {"tools", list_body(kTalk + R"("tools":[)",
                          R"({"type":"function","function":{"name":"f%d","parameters":{"type":"object","properties":{"a":{"type":"string"}}}}})", "]}")},
      {"tools of one name", list_body(kTalk + R"("tools":[)", R"({"type":"function","function":{"name":"f"}})", "]}")},
      {"properties of one tool", list_body(kTalk + R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{)",
                                           R"("p%d":{"type":"integer"})", "}}}}]}")},
      {"arguments of the template", list_body(kTalk + R"("chat_template_kwargs":{)", R"("k%d":1)", "}}")}};
  bodies.insert(bodies.end(), more.begin(), more.end());
  expect_linear(bodies, [](const std::string& body) { decode_chat(body); });
}

TEST(ReadersGrowth, Responses) {
  const std::string input = R"({"model":"m","input":[)", talk = R"({"model":"m","input":"hi",)";
  const Bodies bodies = {
      {"one long input", text_body(R"({"model":"m","input":")", "word ", "\"}")},
      {"items", list_body(input, R"({"role":"user","content":"hi %d"})", "]}")},
      {"parts of an item", list_body(input + R"({"role":"user","content":[)", R"({"type":"input_text","text":"%d"})", "]}]}")},
      {"calls and their outputs",
       list_body(input + R"({"role":"user","content":"hi"},)", R"({"type":"function_call","call_id":"c%d","name":"f","arguments":"{}"})", "]}")},
      {"outputs of no call", list_body(input, R"({"type":"function_call_output","call_id":"c%d","output":"1"})", "]}")},
      {"reasoning", list_body(input, R"({"type":"reasoning","id":"r%d","summary":[{"type":"summary_text","text":"t"}]})", "]}")},
      {"tools",
       list_body(talk + R"("tools":[)", R"({"type":"function","name":"f%d","parameters":{"type":"object","properties":{"a":{"type":"string"}}}})", "]}")},
      {"fields of one tool", list_body(talk + R"("tools":[{"type":"function",)", R"("x%d":1)", "}]}")},
      {"fields of a format", list_body(talk + R"("text":{"format":{"type":"json_schema",)", R"("x%d":1)", "}}}")},
      {"instructions", text_body(talk + R"("instructions":")", "word ", "\"}")},
      {"metadata", list_body(talk + R"("metadata":{)", R"("k%d":"v")", "}}")},
      {"a schema", list_body(talk + R"("text":{"format":{"type":"json_schema","name":"n","schema":{"properties":{)", R"("p%d":{"type":"string"})", "}}}}}")},
      {"names that nobody knows", list_body(talk, R"("x%d":1)", "}")},
  };
  // A talk that goes on: what came before is as long as what comes.
  const auto previous = [](const std::string&) { return Json::array(); };
  expect_linear(bodies, [&](const std::string& body) { decode_response(body, previous); });
  const auto go_on = [](const Json& messages) {
    decode_response(R"({"model":"m","input":"hi","previous_response_id":"r"})", [&](const std::string&) { return messages; });
  };
  EXPECT_LT(growth([](std::size_t size) { return Json(Json::array_t(size / 30, Json{{"role", "user"}, {"content", "hi"}})); }, go_on, 20'000), kLinearGrowth);
}

TEST(ReadersGrowth, Completions) {
  Bodies bodies = shared_bodies(R"({"model":"m","prompt":"a",)");
  const Bodies more = {{"one long prompt", text_body(R"({"model":"m","prompt":")", "word ", "\"}")},
                       {"a prompt of escapes", text_body(R"({"model":"m","prompt":")", R"(\u00e9)", "\"}")},
                       {"ids", list_body(R"({"model":"m","prompt":[)", "%d", "]}")},
                       {"prompts", list_body(R"({"model":"m","prompt":[)", R"("p%d")", "]}")},
                       {"prompts of ids", list_body(R"({"model":"m","prompt":[)", "[1,%d]", "]}")},
                       {"a draft", list_body(R"({"model":"m","prompt":"a","speculative":{"mode":"prediction","draft":[)", "%d", "]}}")},
                       {"strings to hold at", list_body(R"({"model":"m","prompt":"a","stream":true,"hold":{"strings":[)", R"("s%d")", "]}}")}};
  bodies.insert(bodies.end(), more.begin(), more.end());
  expect_linear(bodies, [](const std::string& body) { decode_completion(body); });
}

TEST(ReadersGrowth, FireworksCompletions) {
  const std::string begin = R"({"model":"m","prompt":[1,2],)";
  const Bodies bodies = {{"one long prompt", text_body(R"({"model":"m","prompt":")", "word ", "\"}")},
                         {"ids", list_body(R"({"model":"m","prompt":[)", "%d", "]}")},
                         {"prompts of ids", list_body(R"({"model":"m","prompt":[)", "[1,%d]", "]}")},
                         {"stop strings", list_body(begin + R"("stop":[)", R"("s%d")", "]}")},
                         {"biases", list_body(begin + R"("logit_bias":{)", R"("%d":1)", "}}")},
                         {"images", list_body(begin + R"("images":[)", R"("i%d")", "]}")},
                         {"names that nobody knows", list_body(begin, R"("x%d":1)", "}")}};
  expect_linear(bodies, [](const std::string& body) { decode_fireworks_completion(parse_object(body)); });
}

// POST /v1/embeddings reads its inputs by this.
TEST(ReadersGrowth, InputsOfEmbeddings) {
  const Bodies bodies = {{"one long input", text_body(R"({"input":")", "word ", "\"}")},
                         {"ids", list_body(R"({"input":[)", "%d", "]}")},
                         {"inputs", list_body(R"({"input":[)", R"("p%d")", "]}")},
                         {"inputs of ids", list_body(R"({"input":[)", "[1,%d]", "]}")},
                         {"inputs of two kinds", list_body(R"({"input":["a",)", "[%d]", "]}")}};
  expect_linear(bodies, [](const std::string& body) { prompts_value(parse_object(body).at("input"), "input", body.size()); });
}

#endif
}  // namespace
}  // namespace lockstep
