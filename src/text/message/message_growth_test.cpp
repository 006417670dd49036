// The work of reading a model's output as it comes grows with its length, whatever it is full of, and whatever pieces it comes in
// (base/growth_test_tools.h).
#include <gtest/gtest.h>

#include "base/growth_test_tools.h"
#include "text/message/message_parser.h"

namespace lockstep {
namespace {
#ifndef __SANITIZE_THREAD__  // work that is counted on one thread: nothing for ThreadSanitizer to see, and minutes under it

// `size` bytes of `piece` between two texts.
std::string filled(const std::string& begin, const std::string& piece, const std::string& end, std::size_t size) {
  std::string text = begin;
  while (text.size() < size) text += piece;
  return text + end;
}

TEST(MessageGrowth, WorkGrowsWithTheLength) {
  const nlohmann::ordered_json tools = nlohmann::ordered_json::parse(
      R"([{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"string"},"n":{"type":"array"}}}}}])");
  struct Form {
    MessageFormat format;
    std::string begin, piece, end;
  };
  const Form forms[] = {
      {MessageFormat::plain, "", "word ", ""},
      {MessageFormat::plain, "<think>", "word ", ""},
      {MessageFormat::glm, "", "<", ""},  // what may begin a mark
      {MessageFormat::glm, "", "<tool_cal", ""},
      {MessageFormat::glm, "<tool_call>f<arg_key>a</arg_key><arg_value>", "text ", "</arg_value></tool_call>"},
      {MessageFormat::glm, "<tool_call>f<arg_key>a</arg_key><arg_value>", "</arg_valu", ""},
      {MessageFormat::glm, "", "<tool_call>f<arg_key>a</arg_key><arg_value>x</arg_value></tool_call>", ""},
      {MessageFormat::glm, "<tool_call>f", "<arg_key>a</arg_key><arg_value>x</arg_value>", "</tool_call>"},
      {MessageFormat::glm, "<tool_call>", "name", ""},
      {MessageFormat::qwen, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"", "text ", "\"}}</tool_call>"},
      {MessageFormat::qwen, "<tool_call>{\"name\": \"f\", \"arguments\": {\"n\": [1", ",1", "]}}</tool_call>"},
      {MessageFormat::qwen, "<tool_call>{\"arguments\": {\"n\": [1", ",1", "]}, \"name\": \"f\"}</tool_call>"},  // its name comes last
      {MessageFormat::qwen, "<tool_call><function=f><parameter=a>", "text ", "</parameter></function></tool_call>"},
      {MessageFormat::llama, "{\"name\": \"f\", \"parameters\": {\"a\": \"", "text ", "\"}}"},
      {MessageFormat::llama, "{\"x\": \"", "text ", "\"}"},  // no call
      {MessageFormat::llama, " ", " ", ""},
      {MessageFormat::kimi, "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\":\"", "text ", "\"}"},
      {MessageFormat::minimax, "<minimax:tool_call><invoke name=\"f\"><parameter name=\"a\">", "text ", "</parameter></invoke></minimax:tool_call>"},
      {MessageFormat::nemotron, "<TOOLCALL>[", "{\"name\": \"f\", \"arguments\": {}},", "]</TOOLCALL>"},
  };
  for (const Form& form : forms)
    for (const std::size_t step : {std::size_t{3}, std::size_t{4096}}) {
      const auto make = [&](std::size_t size) { return filled(form.begin, form.piece, form.end, size); };
      const auto read = [&](const std::string& text) {
        MessageParser parser(form.format, tools, false);
        std::size_t told = 0;
        for (std::size_t at = 0; at < text.size(); at += step) told += parser.push(std::string_view(text).substr(at, step)).content.size();
        EXPECT_LE(told + parser.flush().content.size(), text.size());
      };
      EXPECT_LT(growth(make, read, 10'000), kLinearGrowth) << form.begin << form.piece << "..., " << step << " bytes at a time";
    }
}

#endif
}  // namespace
}  // namespace lockstep
