// Any text as what a model wrote, in any format of tool calls: cut between any two characters, the parts make the same message
// in all; arguments are one JSON object, or broken off and no JSON; without markup no word is lost.
// sources: src/text/utf8.cpp src/text/message/argument_types.cpp src/text/message/call_reader.cpp src/text/message/json_*.cpp
// sources: src/text/message/message_parser.cpp src/text/message/tag_calls.cpp src/text/message/tool_call_formats.cpp
#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/philox.h"
#include "text/message/message_parser.h"
#include "text/utf8.h"

using namespace lockstep;
using nlohmann::ordered_json;

namespace {
struct Message {
  std::string reasoning, content;
  std::vector<ToolCallDelta> calls;
  void add(const MessageDelta& delta) {
    reasoning += delta.reasoning;
    content += delta.content;
    for (std::size_t i = 0; i < delta.tool_calls.size(); ++i) {
      const ToolCallDelta& part = delta.tool_calls[i];
      if (part.index > calls.size() || (i > 0 && part.index <= delta.tool_calls[i - 1].index)) __builtin_trap();
      if (part.index == calls.size()) calls.push_back(part);
      else if (part.index + 1 != calls.size() || !part.name.empty()) __builtin_trap();
      else calls.back().arguments += part.arguments;
    }
  }
};

bool same(const Message& a, const Message& b) {
  if (a.reasoning != b.reasoning || a.content != b.content || a.calls.size() != b.calls.size()) return false;
  for (std::size_t i = 0; i < a.calls.size(); ++i)
    if (a.calls[i].id != b.calls[i].id || a.calls[i].name != b.calls[i].name || a.calls[i].arguments != b.calls[i].arguments) return false;
  return true;
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const ordered_json tools = ordered_json::parse(R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
    "properties": {"s": {"type": "string"}, "i": {"type": "integer"}, "b": {"type": "boolean"},
      "a": {"type": "array"}, "n": {"type": ["number", "null"]}}}}}])");
  if (size < 1) return 0;
  const auto format = static_cast<MessageFormat>(data[0] % 8);
  const bool reasoning = data[0] & 64;
  const std::string clean = utf8_lossy({reinterpret_cast<const char*>(data) + 1, size - 1});
  const std::string_view text = clean;
  const auto parse = [&](auto&& next_piece) {
    MessageParser parser(format, data[0] & 128 ? ordered_json() : tools, reasoning);
    Message message;
    for (std::size_t at = 0; at < text.size();) {
      std::size_t piece = std::max<std::size_t>(1, next_piece());
      while (at + piece < text.size() && (static_cast<unsigned char>(text[at + piece]) & 0xC0) == 0x80) ++piece;
      message.add(parser.push(text.substr(at, piece)));
      at += piece;
    }
    message.add(parser.flush());
    return message;
  };
  const Message whole = parse([&] { return text.size(); });
  RandomSequence draws(size, RandomStream::fuzz);
  if (!same(whole, parse([] { return std::size_t{1}; }))) __builtin_trap();
  if (!same(whole, parse([&] { return draws.below(12); }))) __builtin_trap();
  for (const ToolCallDelta& call : whole.calls) {
    const ordered_json arguments = ordered_json::parse(call.arguments, nullptr, false);
    if (call.name.empty() || (!arguments.is_object() && !arguments.is_discarded())) __builtin_trap();
  }
  if (format == MessageFormat::plain && !whole.calls.empty()) __builtin_trap();
  if (text.find('<') == std::string_view::npos && text.find('{') == std::string_view::npos && !reasoning && whole.content != text) __builtin_trap();
  return 0;
}
