// Any bytes as a chat template and what it is rendered with (behind a zero byte, JSON or else a message's text): a prompt
// within its limits whose text from outside is marked, or an Error that says why not.
// sources: src/text/*.cpp src/text/tokenizer/*.cpp src/text/template/*.cpp
#include <cstdint>
#include <string>

#include "base/error.h"
#include "text/template/chat_template.h"
#include "text/utf8.h"

using namespace lockstep;
using nlohmann::ordered_json;

namespace {
constexpr jinja::TemplateLimits kLimits{
    .source_bytes = 1 << 14, .steps = 20'000, .depth = 300, .stack_bytes = 1 << 20, .value_depth = 60, .made_bytes = 1 << 20, .output_bytes = 1 << 16};
// Stands in messages alone, so that each copy of it in a prompt must be marked.
const std::string kMark = "\xF4\x8A\xAF\x8D";

void mark(ordered_json& value, int depth = 0) {
  if (depth > 50) return;
  if (value.is_string()) value = kMark + value.get<std::string>() + kMark;
  if (value.is_structured())
    for (ordered_json& inner : value) mark(inner, depth + 1);
}

ChatTemplateInput input_of(std::string_view bytes) {
  ChatTemplateInput input;
  input.unix_time = 1;
  ordered_json context = ordered_json::parse(bytes, nullptr, false);
  if (!context.is_array() && !context.is_object()) context = ordered_json::array({{{"role", "user"}, {"content", std::string(bytes)}}});
  if (context.is_array()) context = {{"messages", std::move(context)}};
  for (ordered_json& value : context) mark(value);
  const auto take = [&](const char* name) { return context.contains(name) ? context[name] : ordered_json(); };
  input.messages = take("messages");
  input.tools = take("tools");
  input.extra = take("extra");
  input.continue_final_message = context.contains("continue");
  input.add_generation_prompt = !input.continue_final_message;
  return input;
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::size_t zero = std::min(bytes.find('\0'), size);
  try {
    const ChatTemplate chat = ChatTemplate::from_source(std::string(bytes.substr(0, zero)), {{"bos_token", "<s>"}}, kLimits);
    const RenderedPrompt prompt = chat.render_marked(input_of(zero < size ? bytes.substr(zero + 1) : std::string_view("[]")));
    if (prompt.text.size() > kLimits.output_bytes || !utf8_valid(prompt.text)) __builtin_trap();
    std::size_t at = 0;
    for (const auto& range : prompt.untrusted) {
      if (range.begin < at || range.end <= range.begin || range.end > prompt.text.size()) __builtin_trap();
      if (!utf8_valid(prompt.text.substr(range.begin, range.end - range.begin))) __builtin_trap();
      at = range.end;
    }
    for (const auto& range : prompt.generated)
      if (range.end < range.begin || range.end > prompt.text.size()) __builtin_trap();
    if (chat.source().find("\xAF\x8D") != std::string::npos) return 0;
    auto range = prompt.untrusted.begin();
    for (at = prompt.text.find(kMark); at != std::string::npos; at = prompt.text.find(kMark, at + 1)) {
      while (range != prompt.untrusted.end() && range->end <= at) ++range;
      if (range == prompt.untrusted.end() || range->begin > at || range->end < at + kMark.size()) __builtin_trap();
    }
  } catch (const Error& e) {
    if (e.code() == ErrorCode::internal || !utf8_valid(e.what())) __builtin_trap();
  }
  return 0;
}
