#include "api/openai/forced_tool_parser.h"

#include "api/json_fields.h"
#include "base/bounded_json.h"

namespace lockstep {
namespace {
bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
}  // namespace

void ForcedToolParser::begin_call(ChoiceDelta& delta, const std::string& name) {
  ChoiceDelta call;
  call.tool_calls.push_back({calls_++, {}, name, {}});
  delta.append(std::move(call));
  inside_ = true;
  in_string_ = escaped_ = false;
  depth_ = 0;
}

void ForcedToolParser::value_character(char c) {
  if (in_string_) {
    if (escaped_) escaped_ = false;
    else if (c == '\\') escaped_ = true;
    else if (c == '"') in_string_ = false;
    return;
  }
  if (c == '"') in_string_ = true;
  if (c == '{' || c == '[') ++depth_;
  if (c == '}' || c == ']') inside_ = --depth_ > 0;
}

void ForcedToolParser::push(std::string_view text, ChoiceDelta& delta) {
  std::string arguments;
  const auto give = [&] {
    if (arguments.empty()) return;
    ChoiceDelta more;
    more.tool_calls.push_back({calls_ - 1, {}, {}, std::exchange(arguments, {})});
    delta.append(std::move(more));
  };
  for (const char c : text) {
    if (inside_) {
      arguments += c;
      value_character(c);
      continue;
    }
    if (named_) {
      if (calls_ > 0 || is_space(c)) continue;
      begin_call(delta, name_);
    } else {
      // The arguments are the first object inside of the call's own.
      if (c != '{' || head_.find('{') == std::string::npos) {
        head_ += c;
        continue;
      }
      give();
      const Json known = read_json_or_null(head_.substr(head_.find('{')) + "null}");
      begin_call(delta, known.is_object() && known.contains("name") && known["name"].is_string() ? known["name"].get<std::string>() : "");
      head_.clear();
    }
    arguments += c;
    value_character(c);
  }
  give();
}

}  // namespace lockstep
