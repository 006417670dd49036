// Forced calls: the grammar accepts what a family's chat template writes for a call, and whatever it accepts the family's
// parser reads as calls whose arguments are valid under the tool's schema.
#include "text/grammar/call_grammar.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "base/philox.h"
#include "text/message/message_parser.h"
#include "text/template/chat_template.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

struct Family {
  std::string name;  // of its template
  MessageFormat format;
  std::string end;  // of a message
};
const std::vector<Family>& families() {
  static const std::vector<Family> all = {{"real/GLM-4.6", MessageFormat::glm, ""},
                                          {"real/Qwen-Qwen2.5-7B-Instruct", MessageFormat::qwen, "<|im_end|>"},
                                          {"real/Qwen3-Coder", MessageFormat::qwen, "<|im_end|>"},
                                          {"made/llama", MessageFormat::llama, "<|eot_id|>"},
                                          {"made/kimi", MessageFormat::kimi, "<|im_end|>"},
                                          {"made/minimax", MessageFormat::minimax, "[e~["},
                                          {"made/nemotron", MessageFormat::nemotron, "<SPECIAL_12>"},
                                          {"made/deepseek-v3.2", MessageFormat::deepseek, "<｜end▁of▁sentence｜>"}};
  return all;
}

const Json& tools() {
  static const Json all = Json::parse(R"j([{"type": "function", "function": {"name": "get_weather", "description": "w", "parameters": {"type": "object",
    "properties": {"city": {"type": "string", "description": "c"}, "days": {"type": "integer", "description": "d"},
      "deep": {"type": "object", "description": "e"}},
    "required": ["city", "days"]}}},
   {"type": "function", "function": {"name": "all-kinds", "description": "x", "parameters": {"type": "object", "$defs": {"p": {"type": "object",
    "properties": {"x": {"type": "number"}, "s": {"type": "string"}}, "required": ["x", "s"], "additionalProperties": false}},
    "properties": {"unit": {"enum": ["c", "<f>"]}, "code": {"type": "string", "pattern": "^[a-z<]{2,4}$"},
      "short": {"type": "string", "minLength": 1, "maxLength": 5},
      "maybe": {"type": ["string", "null"]}, "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]}, "flag": {"type": "boolean"},
      "point": {"$ref": "#/$defs/p"}, "list": {"type": "array", "items": {"type": "string"}, "maxItems": 3}},
    "required": ["unit", "maybe", "list", "either"], "additionalProperties": false}}},
   {"type": "function", "function": {"name": "none", "description": "n",
    "parameters": {"type": "object", "properties": {}, "additionalProperties": false}}}])j");
  return all;
}

std::string source_of(const Family& family) { return read_file(std::string(LOCKSTEP_SOURCE_DIR) + "/tests/templates/" + family.name + ".jinja", 1 << 20); }

std::shared_ptr<const TokenBytes> bytes() {
  static const auto made = [] {
    std::vector<std::string> all;
    for (int b = 0; b < 256; ++b) all.emplace_back(1, static_cast<char>(b));
    all.emplace_back();
    return std::make_shared<const TokenBytes>(std::move(all), std::vector<std::int32_t>{256});
  }();
  return made;
}

std::shared_ptr<const TokenGrammar> grammar_of(const CallMarkup& markup, const Json& offered, bool several) {
  static const Tokenizer tokenizer = Tokenizer::from_file(LOCKSTEP_SOURCE_DIR "/models/countdown-glm/tokenizer.json");
  return TokenGrammar::from_part(calls_grammar(markup, offered, tokenizer, several), bytes(), {.closed_objects = true});
}

bool call_holds(const std::shared_ptr<const TokenGrammar>& grammar, std::string_view text) {
  GrammarMatcher m(grammar);
  return m.accept_bytes(text) && m.complete();
}

// What the template writes behind the prompt, without what is no call.
std::string rendered(const Family& family, const Json& calls) {
  const ChatTemplate chat = ChatTemplate::from_source(source_of(family));
  const Json ask = {{"role", "user"}, {"content", "w?"}};
  Json calling = {{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array()}};
  for (const Json& call : calls) calling["tool_calls"].push_back({{"id", "call_1"}, {"type", "function"}, {"function", call}});
  const std::string whole = chat.render({.messages = {ask, calling}, .tools = tools(), .add_generation_prompt = false, .unix_time = 1});
  const CallMarkup markup = call_markup(family.format, source_of(family));
  const std::size_t begin = whole.rfind("w?"), first = whole.find(markup.begin + markup.before_name, begin);
  EXPECT_NE(first, std::string::npos) << whole;
  std::string answer = whole.substr(std::min(first, whole.size()));
  if (!family.end.empty()) answer.resize(std::min(answer.size(), answer.rfind(family.end)));
  return answer;
}

TEST(CallGrammar, AdmitsWhatTemplatesWrite) {
  const Json one = {{{"name", "get_weather"}, {"arguments", {{"city", "S\u00e3o \"Paulo\"\n2"}, {"days", 3}, {"deep", {{"a", {1, 2.5, nullptr, true}}}}}}}};
  Json wrong = one, two = one;
  wrong[0]["arguments"]["days"] = Json::array({"x"});
  two.push_back({{"name", "get_weather"}, {"arguments", {{"city", ""}, {"days", -1}}}});
  for (const Family& family : families()) {
    SCOPED_TRACE(family.name);
    EXPECT_EQ(detect_message_format(source_of(family)), family.format);
    const CallMarkup markup = call_markup(family.format, source_of(family));
    const auto several = grammar_of(markup, tools(), true), single = grammar_of(markup, tools(), false);
    EXPECT_TRUE(call_holds(single, rendered(family, one))) << rendered(family, one);
    EXPECT_FALSE(call_holds(single, rendered(family, wrong))) << rendered(family, wrong);
    if (family.format == MessageFormat::llama) continue;  // its template writes one call at most
    EXPECT_TRUE(call_holds(several, rendered(family, two))) << rendered(family, two);
    EXPECT_FALSE(call_holds(single, rendered(family, two)));
  }
}

// A text that the grammar lets through, byte by byte; after a while the shortest way to its end.
std::string walk(const std::shared_ptr<const TokenGrammar>& grammar, RandomSequence& draws, std::size_t most) {
  GrammarMatcher m(grammar);
  std::string text;
  while (true) {
    std::vector<std::uint32_t> words(bytes()->words(), 0);
    m.allowed(words);
    std::vector<int> allowed;
    for (int b = 0; b <= 256; ++b)
      if (words[static_cast<std::size_t>(b / 32)] >> b % 32 & 1) allowed.push_back(b);
    if (allowed.empty()) ADD_FAILURE() << text;
    if (allowed.empty() || (m.complete() && draws.below(3) == 0)) return text;
    int chosen = allowed[draws.below(static_cast<std::uint32_t>(allowed.size()))];
    if (draws.below(4) == 0 && std::find(allowed.begin(), allowed.end(), '<') != allowed.end()) chosen = '<';
    if (text.size() >= most) {
      if (m.complete()) return text;
      std::int64_t best = m.shortest_end();
      for (const int b : allowed) {
        GrammarMatcher next(m);
        if (b < 256 && next.accept(b) && next.shortest_end() < best) best = next.shortest_end(), chosen = b;
      }
    }
    if (chosen == 256) return text;
    EXPECT_TRUE(m.accept(chosen));
    text += static_cast<char>(chosen);
  }
}

TEST(CallGrammar, WhatItAdmitsTheParserReads) {
  std::map<std::string, std::shared_ptr<const TokenGrammar>> valid;
  for (const Json& tool : tools()) valid[tool["function"]["name"]] = TokenGrammar::from_schema(arguments_schema(tool), bytes(), {.closed_objects = true});
  RandomSequence draws(11, RandomStream::fuzz);
  for (const Family& family : families()) {
    SCOPED_TRACE(family.name);
    const auto grammar = grammar_of(call_markup(family.format, source_of(family)), tools(), true);
    std::set<std::string> called;
    for (int round = 0; round < 60; ++round) {
      const std::string text = walk(grammar, draws, 400);
      MessageParser parser(family.format, tools(), false);
      MessageDelta message = parser.push(text);
      const MessageDelta rest = parser.flush();
      ASSERT_EQ(message.content + message.reasoning + rest.content + rest.reasoning, "") << text;
      std::vector<ToolCallDelta> calls = message.tool_calls;
      for (const ToolCallDelta& more : rest.tool_calls) {
        if (more.index == calls.size()) calls.push_back(more);
        else calls.at(more.index).arguments += more.arguments;
      }
      ASSERT_FALSE(calls.empty()) << text;
      for (const ToolCallDelta& call : calls) {
        ASSERT_TRUE(valid.contains(call.name)) << text;
        called.insert(call.name);
        EXPECT_TRUE(call_holds(valid[call.name], call.arguments)) << call.arguments << "\nfrom\n" << text;
      }
    }
    EXPECT_EQ(called.size(), tools().size());
  }
}

// What tags cannot hold is refused, so that who forces a call can choose another form.
std::string mark_of(const Family& family, const CallMarkup& markup) {
  for (const CallBlock& block : tool_call_format(family.format).blocks)
    if ((markup.begin + markup.before_name).starts_with(block.begin)) return std::string(block.begin);
  return {};
}

// Text with calls in it, as a model writes that may call: what stands before, between and behind calls is free, each call is not.
TEST(CallGrammar, CallsAmidTextAreHeld) {
  static const Tokenizer tokenizer = Tokenizer::from_file(LOCKSTEP_SOURCE_DIR "/models/countdown-glm/tokenizer.json");
  const Json one = {{{"name", "get_weather"}, {"arguments", {{"city", "Rome"}, {"days", 3}}}}};
  Json wrong = one, unknown = one;
  wrong[0]["arguments"]["days"] = "many";
  unknown[0]["name"] = "get_water";
  for (const Family& family : families()) {
    SCOPED_TRACE(family.name);
    const CallMarkup markup = call_markup(family.format, source_of(family));
    if (family.format == MessageFormat::llama) continue;  // its calls have no mark: the next test
    const auto grammar = TokenGrammar::from_part(text_with_calls(family.format, markup, tools(), tokenizer, true), bytes(), {.closed_objects = true});
    const std::string call = rendered(family, one), mark = mark_of(family, markup);
    for (const std::string& text : {std::string(), std::string("a < b {} \xff"), call, "so: " + call, call + " and", call + "\n" + call + mark.substr(0, 3)})
      EXPECT_TRUE(call_holds(grammar, text)) << text;
    for (const std::string& text : {rendered(family, wrong), "so: " + rendered(family, unknown), call + rendered(family, wrong), mark + "x"}) {
      GrammarMatcher m(grammar);
      EXPECT_FALSE(m.accept_bytes(text)) << text;
    }
    EXPECT_FALSE(call_holds(grammar, call.substr(0, call.size() - 2)));  // begun, and not ended
    for (const CallBlock& block : tool_call_format(family.format).blocks)
      if (block.begin != mark) {
        EXPECT_FALSE(call_holds(grammar, block.begin)) << block.begin;
      }
  }
}

// Llama's calls are the whole message: what begins as they do is held to be calls, and read as such; everything else is text.
TEST(CallGrammar, AMessageThatBeginsAsACallIsCalls) {
  static const Tokenizer tokenizer = Tokenizer::from_file(LOCKSTEP_SOURCE_DIR "/models/countdown-glm/tokenizer.json");
  const std::string one = R"({"name": "get_weather", "parameters": {"city": "Rome", "days": 3}})", none = R"({"name": "none", "parameters": {}})";
  const CallMarkup markup = call_markup(MessageFormat::llama, "");
  const auto several = TokenGrammar::from_part(text_with_calls(MessageFormat::llama, markup, tools(), tokenizer, true), bytes(), {.closed_objects = true});
  const auto single = TokenGrammar::from_part(text_with_calls(MessageFormat::llama, markup, tools(), tokenizer, false), bytes(), {.closed_objects = true});
  for (const std::string& text :
       {std::string(), std::string("It is {warm} \xff"), std::string("<b> {"), "so: " + one, std::string(100, ' ') + "x {", std::string("  \n")}) {
    EXPECT_TRUE(call_holds(single, text)) << text;
    MessageParser parser(MessageFormat::llama, tools(), false);
    MessageDelta delta = parser.push(text), rest = parser.flush();
    EXPECT_TRUE(delta.tool_calls.empty() && rest.tool_calls.empty()) << text;
  }
  for (const std::string& text : {one, "\n\n" + one, "<|python_tag|>" + one, one + "; " + none}) {
    EXPECT_TRUE(call_holds(several, text)) << text;
    EXPECT_EQ(call_holds(single, text), text.find(';') == std::string::npos) << text;
    MessageParser parser(MessageFormat::llama, tools(), false);
    std::size_t calls = parser.push(text).tool_calls.size() + parser.flush().tool_calls.size();
    EXPECT_GE(calls, 1u) << text;
  }
  for (const std::string& text : {std::string("{\"a\""), std::string(" \t{x"), std::string(80, ' ') + "{\"b\"", one + " and",
                                  std::string(R"({"name": "get_weather", "parameters": {"city": "Rome", "days": "m)"), std::string(R"({"name": "get_water")"),
                                  std::string("see <|python_tag|>"), std::string("<think>")}) {
    GrammarMatcher m(several);
    EXPECT_FALSE(m.accept_bytes(text)) << text;
  }
}

TEST(CallGrammar, TagsRefuseWhatTheyCannotSay) {
  const CallMarkup glm = call_markup(MessageFormat::glm, "<arg_key>");
  for (const char* schema : {R"({"anyOf": [{"type": "object", "properties": {"a": {}}}, {"type": "object", "properties": {"b": {}}}]})",
                             R"({"type": "object", "properties": {"a<b": {}}})", R"({"type": "object", "properties": {" a": {}}})",
                             R"({"type": "object", "properties": {"a": {"allOf": [{"type": ["string", "null"]}, {"type": "string"}]}}})"}) {
    const Json offered = {{{"type", "function"}, {"function", {{"name", "f"}, {"parameters", Json::parse(schema)}}}}};
    try {
      grammar_of(glm, offered, false);
      ADD_FAILURE() << schema;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::unsupported) << e.what();
    }
    EXPECT_NE(grammar_of(plain_call_markup(), offered, false), nullptr);
  }
}

}  // namespace
}  // namespace lockstep
