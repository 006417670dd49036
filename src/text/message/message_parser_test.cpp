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
  std::size_t pieces = 0;  // of calls
  void add(const MessageDelta& delta) {
    reasoning += delta.reasoning;
    content += delta.content;
    pieces += delta.tool_calls.size();
    for (const ToolCallDelta& part : delta.tool_calls) {
      EXPECT_EQ(part.name.empty(), part.index < calls.size());  // the name once, in front
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
  return message;
}

void expect_call(const Message& message, std::size_t index, const std::string& name, const std::string& arguments) {
  ASSERT_LT(index, message.calls.size()) << message.show();
  EXPECT_EQ(message.calls[index].name, name);
  EXPECT_EQ(message.calls[index].arguments, arguments);
  EXPECT_TRUE(ordered_json::accept(message.calls[index].arguments));
}

// A call with arguments of several types, as each family writes it.
struct Sample {
  MessageFormat format;
  std::string text;
};
const std::vector<Sample>& samples() {
  static const std::vector<Sample> rows = {
      {MessageFormat::glm,
       "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>"},
      {MessageFormat::glm,
       "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value><arg_key>days</arg_key><arg_value>3</arg_value></tool_call>"},
      {MessageFormat::qwen, "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\", \"days\": 3}}\n</tool_call>"},
      {MessageFormat::qwen,
       "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"},
      {MessageFormat::llama, "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\", \"days\": 3}}"},
      {MessageFormat::llama, "<|python_tag|>{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\", \"days\": 3}}"},
      {MessageFormat::deepseek,
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Paris\", \"days\": 3}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
      {MessageFormat::deepseek,
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": \"Paris\", \"days\": "
       "3}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
      {MessageFormat::deepseek,
       "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">Paris</｜DSML｜parameter>\n"
       "<｜DSML｜parameter name=\"days\" string=\"false\">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"},
      {MessageFormat::kimi,
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": \"Paris\", \"days\": 3}<|tool_call_end|>"
       "<|tool_calls_section_end|>"},
      {MessageFormat::minimax,
       "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Paris</parameter>\n<parameter "
       "name=\"days\">3</parameter>\n</invoke>\n</minimax:tool_call>"},
      {MessageFormat::nemotron, "<TOOLCALL>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\", \"days\": 3}}]</TOOLCALL>"},
      {MessageFormat::nemotron,
       "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"},
  };
  return rows;
}

void expect_the_samples_call(const Message& message) {
  ASSERT_EQ(message.calls.size(), 1u) << message.show();
  expect_call(message, 0, "get_weather", R"({"city": "Paris", "days": 3})");
  EXPECT_EQ(message.content, "");
}

TEST(MessageParser, ReadsACallInEveryFormat) {
  for (const Sample& sample : samples()) {
    SCOPED_TRACE(sample.text);
    expect_the_samples_call(parse(sample.format, sample.text));
  }
}

// In pieces of one character, as a model may write it.
Message stream(MessageFormat format, std::string_view text) {
  MessageParser parser(format, kTools, false);
  Message message;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t size = 1;
    while (at + size < text.size() && (static_cast<unsigned char>(text[at + size]) & 0xC0) == 0x80) ++size;
    message.add(parser.push(text.substr(at, size)));
    at += size;
  }
  message.add(parser.flush());
  return message;
}

TEST(MessageParser, ArgumentsComeInPieces) {
  for (const Sample& sample : samples()) {
    SCOPED_TRACE(sample.text);
    const Message message = stream(sample.format, sample.text);
    expect_the_samples_call(message);
    EXPECT_GE(message.pieces, 8u);  // the name, and "Paris" a letter at a time
  }
}

TEST(MessageParser, ACallIsToldAsSoonAsItIsCertain) {
  const auto told_after = [](MessageFormat format, std::string_view text) { return !MessageParser(format, kTools, false).push(text).tool_calls.empty(); };
  EXPECT_TRUE(told_after(MessageFormat::glm, "<tool_call>get_weather\n<arg_key>"));
  EXPECT_FALSE(told_after(MessageFormat::glm, "<tool_call>get_weather\n<arg_ke"));
  EXPECT_TRUE(told_after(MessageFormat::qwen, "<tool_call><function=get_weather>"));
  EXPECT_TRUE(told_after(MessageFormat::qwen, R"(<tool_call>{"name": "get_weather", "arguments": {)"));
  EXPECT_FALSE(told_after(MessageFormat::qwen, R"(<tool_call>{"name": "get_weather", "arguments": )"));
  EXPECT_FALSE(told_after(MessageFormat::qwen, R"(<tool_call>{"name": "another", "arguments": {"a": 1})"));  // not offered
  EXPECT_TRUE(told_after(MessageFormat::qwen, R"(<tool_call>{"name": "another", "arguments": {"a": 1}})"));
}

TEST(MessageParser, WhatComesOutAsACallStays) {
  struct Row {
    MessageFormat format;
    std::string text, arguments, content;
  };
  const std::vector<Row> rows = {
      {MessageFormat::qwen, R"(<tool_call>{"name": "get_weather", "arguments": {"city": "Pa)", R"({"city": "Pa)", ""},
      {MessageFormat::qwen, R"(<tool_call>{"name": "get_weather", "arguments": {"city": oops}}</tool_call> end)", R"({"city": )", "oops}}</tool_call> end"},
      {MessageFormat::qwen, R"(<tool_call>{"name": "get_weather", "arguments": {"days": 3}} and</tool_call>)", R"({"days": 3})", "and</tool_call>"},
      {MessageFormat::qwen, R"(<tool_call>{"name": "get_weather", "arguments": {"days": 3})", R"({"days": 3})", ""},
      {MessageFormat::qwen, "<tool_call><function=get_weather><parameter=city>\nPa", R"({"city": "Pa)", ""},
      {MessageFormat::qwen, "<tool_call><function=get_weather><parameter=days>\n3", "", "<parameter=days>\n3"},
      {MessageFormat::glm, "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Pa</arg_value> no", R"({"city": "Pa")", "no"},
      {MessageFormat::glm, "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Pa</arg_value>", R"({"city": "Pa")", ""},
      {MessageFormat::llama, R"({"name": "get_weather", "parameters": {"days": 3,,}})", R"({"days": 3,)", ",}}"},
      {MessageFormat::nemotron, R"(<TOOLCALL>[{"name": "get_weather", "arguments": {}}, 5]</TOOLCALL>)", "{}", ", 5]</TOOLCALL>"},
      {MessageFormat::kimi, "<|tool_calls_section_begin|><|tool_call_begin|>get_weather<|tool_call_argument_begin|>{} {", "{}", "{"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.text);
    for (const Message& message : {parse(row.format, row.text), stream(row.format, row.text)}) {
      ASSERT_EQ(message.calls.size(), 1u) << message.show();
      EXPECT_EQ(message.calls[0].name, "get_weather");
      EXPECT_EQ(message.calls[0].arguments, row.arguments);
      EXPECT_EQ(message.content, row.content);
    }
  }
}

TEST(MessageParser, JsonIsReadAsJsonIs) {
  const auto arguments = [](const std::string& json) {
    const Message message = stream(MessageFormat::qwen, R"(<tool_call>{"name": "get_weather", "arguments": )" + json + "}</tool_call>");
    return message.calls.empty() ? "none: " + message.content : message.calls[0].arguments;
  };
  for (const std::string json : {R"({})", R"({ "a" : [ ] , "b":[1,-0.5e+3,0,1E9,true,false,null,"\u00e9\ud83d\ude00 \\ \" \/"] , "c":{"d":{}}})"}) {
    EXPECT_EQ(arguments(json), json);
    EXPECT_TRUE(ordered_json::accept(json));
  }
  EXPECT_EQ(arguments("{\"a\": \"x\ny\"}"), R"({"a": "x\ny"})");  // a bare line feed, which models write
  EXPECT_EQ(arguments(R"("{\"a\": 1}")"), R"({"a": 1})");         // as a text
  for (const std::string json : {R"({"a": 01})", R"({"a": .5})", R"({"a": +1})", R"({"a": 1.})", R"({"a": tru})", R"({"a" 1})", R"({a: 1})", R"({"a": "\x"})",
                                 R"({"a": "\ud800"})", R"({"a": "\udc00"})", R"({"a": 1,})", R"({"a": [1,]})", R"({"a": [1})", R"({"a": -})", R"({"a": 1e})"}) {
    EXPECT_FALSE(ordered_json::accept(json)) << json;
    EXPECT_FALSE(ordered_json::accept(arguments(json))) << json;
  }
  EXPECT_TRUE(arguments("[1]").starts_with("none: "));
  EXPECT_TRUE(arguments("\"text\"").starts_with("none: "));
  const std::string deep = R"({"a": )" + std::string(600, '[') + std::string(600, ']') + "}";
  EXPECT_FALSE(ordered_json::accept(arguments(deep)));
  // Any order, other members, escapes in keys and names.
  const Message message =
      stream(MessageFormat::qwen, R"(<tool_call>{"id": 7, "\u0061rguments": {"days": 3}, "x": [{"name": "no"}], "name": "get\u005fweather"}</tool_call>)");
  expect_call(message, 0, "get_weather", R"({"days": 3})");
  EXPECT_EQ(message.content, "");
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
  for (const std::string& text :
       std::vector<std::string>{R"({"a": 1} and more)", R"({"name": 5, "parameters": {}})", "{broken", "<|python_tag|>print(1)", "text first " + call})
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
      {MessageFormat::kimi,
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{bad<|tool_call_end|><|tool_calls_section_end|>"},
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
    return parse(MessageFormat::glm, "<tool_call>get_weather<arg_key>" + key + "</arg_key><arg_value>" + text + "</arg_value></tool_call>")
        .calls.at(0)
        .arguments;
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
  MessageParser parser(MessageFormat::glm, ordered_json(), false);
  Message message;
  for (std::size_t at = 0; at < text.size(); at += 65536) message.add(parser.push(std::string_view(text).substr(at, 65536)));
  message.add(parser.flush());
  EXPECT_EQ(message.content, text);
  EXPECT_EQ(parse(MessageFormat::glm, text).content, text);
}

TEST(MessageFormat, NamesAndDetection) {
  for (const std::string& name : message_format_names()) EXPECT_EQ(tool_call_format(message_format_by_name(name)).name, name);
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
  static const std::vector<std::string> pieces = {"{\"name\": \"get_weather\", \"arguments\": {\"city\": \"",
                                                  "{\"name\": \"get_weather\", \"parameters\": {",
                                                  "\"days\": 3",
                                                  "}}",
                                                  ",",
                                                  "[",
                                                  "]",
                                                  "get_weather",
                                                  "<arg_key>city</arg_key>",
                                                  "<arg_value>",
                                                  "</arg_value>",
                                                  "<function=get_weather>",
                                                  "<parameter=city>\n",
                                                  "<parameter=days>",
                                                  "\n</parameter>",
                                                  "<invoke name=\"get_weather\">",
                                                  "<parameter name=\"city\">",
                                                  "<｜DSML｜function_calls>",
                                                  "<｜DSML｜invoke name=\"get_weather\">",
                                                  "</｜DSML｜invoke>",
                                                  "<｜DSML｜parameter name=\"city\" string=\"true\">",
                                                  "</｜DSML｜parameter>",
                                                  "</｜DSML｜function_calls>",
                                                  "<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>",
                                                  "<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n",
                                                  "\n```<｜tool▁call▁end｜>",
                                                  "<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>",
                                                  "<|tool_call_end|>",
                                                  "{}",
                                                  "<think>",
                                                  "</think>",
                                                  "<tool_call>",
                                                  "</tool_call>",
                                                  "\n",
                                                  " ",
                                                  "a",
                                                  "<",
                                                  "</",
                                                  "é",
                                                  "{",
                                                  "}",
                                                  "\"",
                                                  "\\",
                                                  ";",
                                                  "<|python_tag|>",
                                                  "{\"name\": \"f\", \"arguments\": {\"x\": 1}}",
                                                  "{\"name\": \"f\", \"parameters\": {}}",
                                                  "f<arg_key>a</arg_key><arg_value>1</arg_value>",
                                                  "<function=f>",
                                                  "<parameter=p>",
                                                  "</parameter>",
                                                  "</function>",
                                                  "<TOOLCALL>",
                                                  "</TOOLCALL>",
                                                  "[{\"name\": \"f\", \"arguments\": {}}]",
                                                  "<minimax:tool_call>",
                                                  "</minimax:tool_call>",
                                                  "<invoke name=\"f\">",
                                                  "</invoke>",
                                                  "<｜tool▁calls▁begin｜>",
                                                  "<｜tool▁calls▁end｜>",
                                                  "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜>",
                                                  "<|tool_calls_section_begin|>",
                                                  "<|tool_calls_section_end|>",
                                                  "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
                                                  "                                                                      "};
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
// With calls too, every word is somewhere: whole, broken off or malformed. (A word in a name or in a member that is neither name
// nor arguments is none: those are the format's.)
RC_GTEST_PROP(MessageParserProperty, NoWordIsLost, ()) {
  const auto format = message_format_by_name(*rc::gen::elementOf(message_format_names()));
  const std::string text = *model_text();
  static const std::vector<std::string> marks = {
      "\"city\": \"", "<arg_value>", "<parameter=city>\n", "string=\"true\">", "name=\"city\">", "</tool_call>", "</invoke>", "\n```<", "Pa"};
  std::string with;
  int words = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto mark = std::find_if(marks.begin(), marks.end(), [&](const std::string& m) { return text.compare(at, m.size(), m) == 0; });
    const std::size_t size = mark == marks.end() ? 1 : mark->size();
    with += text.substr(at, size);
    if (mark != marks.end()) with += fmt::format("w{}w", words++);
    at += size;
  }
  const Message message = parse(format, with);
  std::string all = message.reasoning + message.content;
  for (const ToolCallDelta& call : message.calls) all += call.arguments;
  for (int word = 0; word < words; ++word) RC_ASSERT(all.find(fmt::format("w{}w", word)) != std::string::npos);
}

// Arguments that are JSON are whole; others are broken off, and never by a word.
RC_GTEST_PROP(MessageParserProperty, WholeArgumentsAreAnObject, ()) {
  const auto format = message_format_by_name(*rc::gen::elementOf(message_format_names()));
  for (const ToolCallDelta& call : parse(format, *model_text()).calls) {
    RC_ASSERT(!call.name.empty());
    const ordered_json json = ordered_json::parse(call.arguments, nullptr, false);
    RC_ASSERT(json.is_discarded() || json.is_object());
  }
}
// For clients that want one call: the message ends with it, wherever the text is cut.
TEST(MessageParser, EndsWithTheFirstCall) {
  const nlohmann::ordered_json tools =
      nlohmann::ordered_json::parse(R"([{"function": {"name": "f", "parameters": {"properties": {"a": {"type": "integer"}}}}}])");
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
  for (const std::string& text : {"Hm. " + call + "\n" + call + " more", "Hm. " + call + call}) {
    for (std::size_t piece : {std::size_t{1}, std::size_t{7}, text.size()}) {
      MessageParser parser(MessageFormat::qwen, tools, false);
      parser.end_with_first_call();
      std::string content, arguments;
      std::size_t over_at = 0, calls = 0;
      const auto take = [&](const MessageDelta& delta) {
        content += delta.content;
        for (const ToolCallDelta& one : delta.tool_calls) {
          arguments += one.arguments;
          calls = std::max(calls, one.index + 1);
        }
      };
      for (std::size_t at = 0; at < text.size(); at += piece) {
        take(parser.push(std::string_view(text).substr(at, piece)));
        if (over_at == 0 && parser.over()) over_at = at + piece;
      }
      take(parser.flush());
      EXPECT_EQ(content, "Hm.");
      EXPECT_EQ(arguments, "{\"a\": 1}");
      EXPECT_EQ(calls, 1u);
      if (piece == 1) {
        EXPECT_EQ(over_at, text.find("}}") + 2);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
