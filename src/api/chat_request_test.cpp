#include "api/openai/chat_request.h"

#include <gtest/gtest.h>

#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

std::string refusal(const std::string& body) {
  try {
    decode_chat(body);
  } catch (const RequestError& e) {
    return e.param() + "|" + e.what();
  }
  return "accepted";
}
std::string param(const std::string& body) { return refusal(body).substr(0, refusal(body).find('|')); }
std::string with(const std::string& fields) { return R"({"model":"m","messages":[{"role":"user","content":"hi"}],)" + fields + "}"; }
std::string message(const std::string& fields) { return R"({"model":"m","messages":[{"role":"user","content":"hi"},{)" + fields + "}]}"; }
const std::string kTool = R"({"type":"function","function":{"name":"add","parameters":{"type":"object"}}})";

TEST(ChatRequest, Defaults) {
  const ChatRequest r = decode_chat(R"({"model":"m","messages":[{"role":"user","content":"hi"}]})");
  EXPECT_EQ(r.sampling.model, "m");
  EXPECT_FALSE(r.sampling.max_tokens);
  EXPECT_EQ(r.prompt.messages, Json::parse(R"([{"role":"user","content":"hi"}])"));
  EXPECT_EQ(r.tool_choice.kind, ToolChoice::Kind::automatic);
  EXPECT_TRUE(r.parallel_tool_calls);
  EXPECT_FALSE(r.logprobs || r.sampling.stream);
}

TEST(ChatRequest, MessagesAsTemplatesExpectThem) {
  const ChatRequest r = decode_chat(R"({"model":"m","messages":[
    {"role":"developer","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
    {"role":"assistant","content":null,"reasoning_content":"hm","refusal":null,"annotations":[],"audio":null,"function_call":null,
     "tool_calls":[{"id":"c1","type":"function","function":{"name":"add","arguments":"{\"b\": 1, \"a\": [2]}"}},
                   {"id":"c2","function":{"name":"none","arguments":""}}]},
    {"role":"tool","content":"3","tool_call_id":"c1"}]})");
  EXPECT_EQ(r.prompt.messages, Json::parse(R"([
    {"role":"system","content":"a\nb"},
    {"role":"assistant","reasoning_content":"hm","content":"",
     "tool_calls":[{"id":"c1","type":"function","function":{"name":"add","arguments":{"b":1,"a":[2]}}},
                   {"id":"c2","type":"function","function":{"name":"none","arguments":{}}}]},
    {"role":"tool","content":"3","tool_call_id":"c1"}])"));
}

TEST(ChatRequest, EveryField) {
  const ChatRequest r = decode_chat(
      with(R"("max_completion_tokens":7,"logprobs":true,"top_logprobs":20,"parallel_tool_calls":false,"reasoning_effort":"low",)"
           R"("chat_template_kwargs":{"enable_thinking":false},"tool_choice":{"type":"function","function":{"name":"add"}},"store":false,)"
           R"("service_tier":"auto","metadata":{},"verbosity":"medium","modalities":["text"],"prediction":{"type":"content","content":"x"},"tools":[)" +
           kTool + "]"));
  EXPECT_EQ(r.sampling.max_tokens, 7);
  EXPECT_EQ(r.sampling.max_tokens_field, "max_completion_tokens");
  EXPECT_TRUE(r.logprobs);
  EXPECT_EQ(r.top_logprobs, 20);
  EXPECT_FALSE(r.parallel_tool_calls);
  EXPECT_EQ(r.prompt.template_arguments, Json::parse(R"({"reasoning_effort":"low","enable_thinking":false})"));
  EXPECT_EQ(r.tool_choice.kind, ToolChoice::Kind::named);
  EXPECT_EQ(r.tool_choice.name, "add");
  EXPECT_EQ(decode_chat(R"({"model":"m","messages":[],"prompt_token_ids":[1,2]})").prompt.ids, (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(decode_chat(R"({"model":"m","messages":[{"role":"assistant","content":"a"}],"continue_final_message":true})").prompt.continue_final_message, true);
}

TEST(ChatRequest, RefusalsNameTheField) {
  const std::pair<std::string, std::string> rows[] = {
      {R"({"model":"m"})", "messages"},
      {R"({"model":"m","messages":[]})", "messages"},
      {R"({"model":"m","messages":"hi"})", "messages"},
      {R"({"model":"m","messages":["hi"]})", "messages[0]"},
      {message(R"("content":"a")"), "messages[1].role"},
      {message(R"("role":"usr","content":"a")"), "messages[1].role"},
      {message(R"("role":7,"content":"a")"), "messages[1].role"},
      {message(R"("role":"function","content":"a","name":"f")"), "messages[1].role"},
      {message(R"("role":"user")"), "messages[1].content"},
      {message(R"("role":"user","content":null)"), "messages[1].content"},
      {message(R"("role":"user","content":7)"), "messages[1].content"},
      {message(R"("role":"user","content":["a"])"), "messages[1].content[0]"},
      {message(R"("role":"user","content":[{"text":"a"}])"), "messages[1].content[0].type"},
      {message(R"("role":"user","content":[{"type":"txt","text":"a"}])"), "messages[1].content[0].type"},
      {message(R"("role":"user","content":[{"type":"text","text":1}])"), "messages[1].content[0].text"},
      {message(R"("role":"user","content":[{"type":"text"}])"), "messages[1].content[0].text"},
      {message(R"("role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}])"), "messages[1].content[0].type"},
      {message(R"("role":"user","content":[{"type":"input_audio","input_audio":{}}])"), "messages[1].content[0].type"},
      {message(R"("role":"user","content":"a","tool_calls":[])"), "messages[1].tool_calls"},
      {message(R"("role":"user","contnt":"a")"), "messages[1].contnt"},
      {message(R"("role":"user","content":"a","name":7)"), "messages[1].name"},
      {message(R"("role":"tool","content":"a")"), "messages[1].tool_call_id"},
      {message(R"("role":"assistant")"), "messages[1].content"},
      {message(R"("role":"assistant","tool_calls":7)"), "messages[1].tool_calls"},
      {message(R"("role":"assistant","tool_calls":[{"id":"a"}])"), "messages[1].tool_calls[0].function"},
      {message(R"("role":"assistant","tool_calls":[{"function":{"name":""}}])"), "messages[1].tool_calls[0].function.name"},
      {message(R"("role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{"}}])"), "messages[1].tool_calls[0].function.arguments"},
      {message(R"("role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{\"a\":)" + std::string(200'000, '[') + R"("}}])"),
       "messages[1].tool_calls[0].function.arguments"},
      {message(R"("role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"[1]"}}])"), "messages[1].tool_calls[0].function.arguments"},
      {message(R"("role":"assistant","tool_calls":[{"type":"custom","function":{"name":"f"}}])"), "messages[1].tool_calls[0].type"},
      {message(R"("role":"assistant","content":"a","audio":{"id":"x"})"), "messages[1].audio"},
      {with(R"("max_token":5)"), "max_token"},
      {with(R"("max_tokens":5,"max_completion_tokens":6)"), "max_tokens"},
      {with(R"("max_completion_tokens":-1)"), "max_completion_tokens"},
      {with(R"("best_of":2)"), "best_of"},
      {with(R"("echo":true)"), "echo"},
      {with(R"("n":0)"), "n"},
      {with(R"("n":257)"), "n"},
      {with(R"("temperature":-0.1)"), "temperature"},
      {with(R"("min_p":1.5)"), "min_p"},
      {with(R"("presence_penalty":3)"), "presence_penalty"},
      {with(R"("frequency_penalty":-3)"), "frequency_penalty"},
      {with(R"("repetition_penalty":0)"), "repetition_penalty"},
      {with(R"("logit_bias":[1])"), "logit_bias"},
      {with(R"("logprobs":1)"), "logprobs"},
      {with(R"("top_logprobs":2)"), "top_logprobs"},
      {with(R"("logprobs":true,"top_logprobs":21)"), "top_logprobs"},
      {with(R"("response_format":"json")"), "response_format"},
      {with(R"("response_format":{"type":"json_schema","json_schema":{"schema":7}})"), "response_format.json_schema.schema"},
      {with(R"("response_format":{"type":"text","schema":{}})"), "response_format.schema"},
      {with(R"("tools":{})"), "tools"},
      {with(R"("tools":[{}])"), "tools[0].type"},
      {with(R"("tools":[{"type":"web_search"}])"), "tools[0].type"},
      {with(R"("tools":[{"type":"function"}])"), "tools[0].function"},
      {with(R"("tools":[{"type":"function","function":{}}])"), "tools[0].function.name"},
      {with(R"("tools":[{"type":"function","function":{"name":"a b"}}])"), "tools[0].function.name"},
      {with(R"("tools":[{"type":"function","function":{"name":"a","parameters":[]}}])"), "tools[0].function.parameters"},
      {with(R"("tools":[{"type":"function","function":{"name":"a","parametres":{}}}])"), "tools[0].function.parametres"},
      {with(R"("tools":[)" + kTool + "," + kTool + "]"), "tools[1].function.name"},
      {with(R"("tool_choice":"required")"), "tool_choice"},
      {with(R"("tool_choice":"any","tools":[)" + kTool + "]"), "tool_choice"},
      {with(R"("tool_choice":{"type":"function","function":{"name":"ad"}},"tools":[)" + kTool + "]"), "tool_choice.function.name"},
      {with(R"("tool_choice":{"type":"function"},"tools":[)" + kTool + "]"), "tool_choice.function.name"},
      {with(R"("tool_choice":{"type":"allowed_tools"})"), "tool_choice.type"},
      {with(R"("functions":[])"), "functions"},
      {with(R"("function_call":"auto")"), "function_call"},
      {with(R"("modalities":["audio"])"), "modalities"},
      {with(R"("audio":{"voice":"a"})"), "audio"},
      {with(R"("web_search_options":{})"), "web_search_options"},
      {with(R"("prompt_token_ids":[1])"), "prompt_token_ids"},
      {with(R"("continue_final_message":true)"), "messages[0].role"},
      {with(R"("continue_final_message":true,"add_generation_prompt":true)"), "add_generation_prompt"},
      {with(R"("chat_template_kwargs":{"messages":[]})"), "chat_template_kwargs.messages"},
      {with(R"("chat_template_kwargs":7)"), "chat_template_kwargs"},
      {with(R"("reasoning_effort":3)"), "reasoning_effort"},
      {with(R"("stream_options":{"include_usage":true})"), "stream_options"},
      {with(R"("stream":true,"stream_options":{"usage":true})"), "stream_options.usage"},
  };
  for (const auto& [body, field] : rows) EXPECT_EQ(param(body), field) << body << "\n" << refusal(body);
  EXPECT_EQ(refusal(message(R"("role":"usr","content":"a")")),
            "messages[1].role|messages[1].role is \"usr\", allowed are system, developer, user, assistant, tool; did you mean 'user'?");
  EXPECT_EQ(refusal(message(R"("role":"user","contnt":"a")")), "messages[1].contnt|unknown field 'messages[1].contnt'; did you mean 'content'?");
}

RC_GTEST_PROP(ChatRequest, MutatedBodiesAreRefusedOrAccepted, ()) {
  std::string body = with(R"("max_tokens":5,"stop":["x"],"logit_bias":{"3":1},"tool_choice":"auto","tools":[)" + kTool +
                          R"(],"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"object"}}})");
  const auto edits = *rc::gen::inRange(1, 6);
  for (int i = 0; i < edits; ++i) body[*rc::gen::inRange<std::size_t>(0, body.size())] = *rc::gen::arbitrary<char>();
  refusal(body);
}

}  // namespace
}  // namespace lockstep
