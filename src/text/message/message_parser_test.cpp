#include "text/message/message_parser.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/error.h"

namespace lockstep {
namespace {
using nlohmann::ordered_json;

struct Message {
  std::string reasoning, content;
  std::vector<ToolCallDelta> calls;
  void add(const MessageDelta& delta) {
    reasoning += delta.reasoning;
    content += delta.content;
    for (const ToolCallDelta& part : delta.tool_calls) {
      if (part.index == calls.size()) calls.push_back(part);
      else calls.at(part.index).arguments += part.arguments;
    }
  }
  std::string show() const {
    std::string text = "reasoning=" + reasoning + "|content=" + content;
    for (const ToolCallDelta& call : calls) text += "|" + call.id + " " + call.name + call.arguments;
    return text;
  }
};

const ordered_json kTools = ordered_json::parse(R"([{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
  "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "exact": {"type": "boolean"}, "places": {"type": "array"},
  "note": {"type": ["string", "null"]}, "ratio": {"anyOf": [{"type": "number"}, {"type": "null"}]}}}}}])");

Message parse(MessageFormat format, std::string_view text, bool in_reasoning = false) {
  MessageParser parser(format, kTools, in_reasoning);
  Message message;
  message.add(parser.push(text));
  message.add(parser.flush());
  EXPECT_EQ(parser.has_tool_calls(), !message.calls.empty());
  return message;
}

void expect_call(const Message& message, std::size_t index, const std::string& name, const std::string& arguments) {
  ASSERT_LT(index, message.calls.size()) << message.show();
  EXPECT_EQ(message.calls[index].name, name);
  EXPECT_EQ(message.calls[index].arguments, arguments);
  EXPECT_TRUE(ordered_json::accept(message.calls[index].arguments));
  EXPECT_FALSE(message.calls[index].id.empty());
}

// A call with arguments of several types, as each family writes it.
struct Sample {
  MessageFormat format;
  std::string text;
};
const std::vector<Sample>& samples() {
  static const std::vector<Sample> rows = {
      {MessageFormat::glm, "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>"},
      {MessageFormat::glm, "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value><arg_key>days</arg_key><arg_value>3</arg_value></tool_call>"},
      {MessageFormat::qwen, "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\", \"days\": 3}}\n</tool_call>"},
      {MessageFormat::qwen,
       "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"},
      {MessageFormat::llama, "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\", \"days\": 3}}"},
      {MessageFormat::llama, "<|python_tag|>{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\", \"days\": 3}}"},
      {MessageFormat::deepseek,
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Paris\", \"days\": 3}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
      {MessageFormat::deepseek,
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": \"Paris\", \"days\": 3}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
      {MessageFormat::deepseek,
       "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">Paris</｜DSML｜parameter>\n"
       "<｜DSML｜parameter name=\"days\" string=\"false\">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"},
      {MessageFormat::kimi,
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": \"Paris\", \"days\": 3}<|tool_call_end|>"
       "<|tool_calls_section_end|>"},
      {MessageFormat::minimax,
       "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Paris</parameter>\n<parameter name=\"days\">3</parameter>\n</invoke>\n</minimax:tool_call>"},
      {MessageFormat::nemotron, "<TOOLCALL>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\", \"days\": 3}}]</TOOLCALL>"},
      {MessageFormat::nemotron,
       "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"},
  };
  return rows;
}

TEST(MessageParser, ReadsACallInEveryFormat) {
  for (const Sample& sample : samples()) {
    SCOPED_TRACE(sample.text);
    const Message message = parse(sample.format, sample.text);
    ASSERT_EQ(message.calls.size(), 1u) << message.show();
    expect_call(message, 0, "get_weather", R"({"city": "Paris", "days": 3})");
    EXPECT_EQ(message.content, "");
  }
}

TEST(MessageParser, KeepsReasoningAndContentAroundACall) {
  for (const Sample& sample : samples()) {
    if (sample.format == MessageFormat::llama) continue;  // its calls are the whole message
    SCOPED_TRACE(sample.text);
    const Message message = parse(sample.format, "<think>\nLet me see.\n</think>\n\nI ask.\n" + sample.text + "\n" + sample.text + "\nDone.");
    EXPECT_EQ(message.reasoning, "Let me see.");
    EXPECT_EQ(message.content, "I ask.Done.");
    ASSERT_EQ(message.calls.size(), 2u);
    EXPECT_NE(message.calls[0].id + std::to_string(message.calls[0].index), message.calls[1].id + std::to_string(message.calls[1].index));
  }
}

TEST(MessageParser, AnotherFormatsCallIsContent) {
  for (const Sample& sample : samples()) EXPECT_EQ(parse(MessageFormat::plain, sample.text).content, sample.text);
}

TEST(MessageParser, LlamaTakesSeveralCallsAndLeavesOtherJsonAlone) {
  const std::string call = R"({"name": "get_weather", "parameters": {"city": "a}\"{"}})";
  const Message two = parse(MessageFormat::llama, call + "; " + call + "\n");
  ASSERT_EQ(two.calls.size(), 2u);
  expect_call(two, 1, "get_weather", R"({"city": "a}\"{"})");
  EXPECT_EQ(two.content, "");
  for (const std::string& text : std::vector<std::string>{R"({"a": 1} and more)", R"({"name": 5, "parameters": {}})", "{broken", "<|python_tag|>print(1)", "text first " + call})
    EXPECT_EQ(parse(MessageFormat::llama, text).content, text);
}

TEST(MessageParser, ReasoningMayBeOpenOrAbsent) {
  EXPECT_EQ(parse(MessageFormat::qwen, "deep\n</think>\n\nanswer", true).show(), "reasoning=deep|content=answer");
  EXPECT_EQ(parse(MessageFormat::qwen, "<think>\ndeep\n</think>answer", true).show(), "reasoning=deep|content=answer");
  EXPECT_EQ(parse(MessageFormat::qwen, "never closed\n", true).show(), "reasoning=never closed\n|content=");
  EXPECT_EQ(parse(MessageFormat::qwen, "  plain <think> text ").show(), "reasoning=|content=  plain <think> text ");
  EXPECT_EQ(parse(MessageFormat::plain, "\n<think></think>x").show(), "reasoning=|content=x");
  EXPECT_EQ(parse(MessageFormat::qwen, "a </think> in content").content, "a </think> in content");
}

TEST(MessageParser, MalformedCallsComeOutAsTheyStood) {
  const std::vector<Sample> rows = {
      {MessageFormat::qwen, "x <tool_call>\nnot json\n</tool_call> y"},
      {MessageFormat::qwen, "<tool_call>{\"name\": \"f\"}</tool_call>"},
      {MessageFormat::qwen, "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>"},
      {MessageFormat::qwen, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}"},
      {MessageFormat::qwen, "<tool_call><function=f><parameter=a>1</function></tool_call>"},
      {MessageFormat::glm, "<tool_call>get_weath"},
      {MessageFormat::glm, "<tool_call>f<arg_key>a</arg_key></tool_call>"},
      {MessageFormat::glm, "<tool_call></tool_call>"},
      {MessageFormat::kimi, "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{bad<|tool_call_end|><|tool_calls_section_end|>"},
      {MessageFormat::deepseek, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}"},
      {MessageFormat::minimax, "<minimax:tool_call><invoke name=\"f\"></minimax:tool_call>"},
      {MessageFormat::nemotron, "<TOOLCALL>[]</TOOLCALL>"},
      {MessageFormat::nemotron, "<TOOLCALL>[1]</TOOLCALL>"},
  };
  for (const Sample& row : rows) EXPECT_EQ(parse(row.format, row.text).show(), "reasoning=|content=" + row.text);
}

TEST(MessageParser, AnEndMarkerInsideAJsonStringDoesNotEndTheCall) {
  const Message message = parse(MessageFormat::qwen, R"(<tool_call>{"name": "f", "arguments": {"a": "</tool_call> \" </tool_call>"}}</tool_call>)");
  expect_call(message, 0, "f", R"({"a": "</tool_call> \" </tool_call>"})");
}

TEST(MessageParser, SchemasSayWhatBareTextIs) {
  const auto value = [](const std::string& key, const std::string& text) {
    return parse(MessageFormat::glm, "<tool_call>get_weather<arg_key>" + key + "</arg_key><arg_value>" + text + "</arg_value></tool_call>").calls.at(0).arguments;
  };
  EXPECT_EQ(value("city", "5"), R"({"city": "5"})");
  EXPECT_EQ(value("city", " a\nb\" "), R"({"city": " a\nb\" "})");
  EXPECT_EQ(value("days", " 18446744073709551616 "), R"({"days": 18446744073709551616})");  // no digit lost
  EXPECT_EQ(value("days", "many"), R"({"days": "many"})");
  EXPECT_EQ(value("exact", "True"), R"({"exact": true})");
  EXPECT_EQ(value("places", R"(["a", {"b": 1.50}])"), R"({"places": ["a", {"b": 1.50}]})");
  EXPECT_EQ(value("note", "null"), R"({"note": null})");
  EXPECT_EQ(value("note", "12"), R"({"note": "12"})");
  EXPECT_EQ(value("ratio", "None"), R"({"ratio": null})");
  EXPECT_EQ(value("unknown", "1"), R"({"unknown": 1})");
  EXPECT_EQ(value("unknown", "one"), R"({"unknown": "one"})");
}

TEST(MessageParser, AVeryLongCallIsContent) {
  const std::string text = "<tool_call>" + std::string(MessageParser::kMostCallBytes + 100, 'x') + "</tool_call>after";
  MessageParser parser(MessageFormat::glm, nullptr, false);
  Message message;
  for (std::size_t at = 0; at < text.size(); at += 65536) message.add(parser.push(std::string_view(text).substr(at, 65536)));
  message.add(parser.flush());
  EXPECT_EQ(message.content, text);
  EXPECT_EQ(parse(MessageFormat::glm, text).content, text);
}

TEST(MessageFormat, NamesAndDetection) {
  for (const std::string& name : message_format_names()) EXPECT_EQ(message_format_name(message_format_by_name(name)), name);
  try {
    message_format_by_name("qwem");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("did you mean 'qwen'"), std::string::npos) << e.message();
  }
  EXPECT_EQ(detect_message_format("{{ messages }}"), MessageFormat::plain);
  EXPECT_EQ(detect_message_format("<tool_call>{{ name }}<arg_key>"), MessageFormat::glm);
  EXPECT_EQ(detect_message_format("<tool_call>\n<function="), MessageFormat::qwen);
}

// Pieces that make markers, near misses and white space likely.
rc::Gen<std::string> model_text() {
  static const std::vector<std::string> pieces = {
      "<think>", "</think>", "<tool_call>", "</tool_call>", "\n", " ", "a", "<", "</", "é", "{", "}", "\"", "\\", ";", "<|python_tag|>",
      "{\"name\": \"f\", \"arguments\": {\"x\": 1}}", "{\"name\": \"f\", \"parameters\": {}}", "f<arg_key>a</arg_key><arg_value>1</arg_value>",
      "<function=f>", "<parameter=p>", "</parameter>", "</function>", "<TOOLCALL>", "</TOOLCALL>", "[{\"name\": \"f\", \"arguments\": {}}]",
      "<minimax:tool_call>", "</minimax:tool_call>", "<invoke name=\"f\">", "</invoke>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>",
      "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜>", "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>",
      "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>", "                                                                      "};
  return rc::gen::map(rc::gen::container<std::vector<std::string>>(rc::gen::elementOf(pieces)), [](const std::vector<std::string>& parts) {
    std::string text;
    for (const std::string& part : parts) text += part;
    return text;
  });
}

RC_GTEST_PROP(MessageParserProperty, CutsChangeNothing, ()) {
  const auto format = message_format_by_name(*rc::gen::elementOf(message_format_names()));
  const bool in_reasoning = *rc::gen::arbitrary<bool>();
  const std::string text = *model_text();
  const Message whole = parse(format, text, in_reasoning);
  for (const bool single : {true, false}) {
    MessageParser parser(format, kTools, in_reasoning);
    Message pieces;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = single ? 1 : *rc::gen::inRange<std::size_t>(1, 12);
      pieces.add(parser.push(std::string_view(text).substr(at, size)));
      at += size;
    }
    pieces.add(parser.flush());
    RC_ASSERT(pieces.show() == whole.show());
  }
}

// Without calls, what comes out is what went in, less the reasoning's tags and the newlines beside them.
RC_GTEST_PROP(MessageParserProperty, NothingIsLost, ()) {
  const auto format = message_format_by_name(*rc::gen::elementOf(message_format_names()));
  const std::string text = *model_text();
  const Message message = parse(format, text);
  if (!message.calls.empty()) return;
  const auto bare = [](std::string s) {
    std::erase_if(s, [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; });
    return s;
  };
  std::string expected = bare(text);
  if (expected.starts_with("<think>") && text.find('<') < 64) {
    expected.erase(0, 7);
    if (const auto end = expected.find("</think>"); end != std::string::npos) expected.erase(end, 8);
  }
  RC_ASSERT(bare(message.reasoning + message.content) == expected);
}
}  // namespace
}  // namespace lockstep
