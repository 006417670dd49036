#include "text/message/tool_call_formats.h"

#include <algorithm>
#include <cctype>

#include "base/ascii.h"
#include "base/error.h"

namespace lockstep {

using nlohmann::ordered_json;
using Calls = std::optional<std::vector<ParsedCall>>;

namespace {
constexpr std::size_t kMostNameBytes = 256;

// Reads a body from the front.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}
  void space() {
    while (!text_.empty() && std::isspace(static_cast<unsigned char>(text_.front()))) text_.remove_prefix(1);
  }
  bool ended() {
    space();
    return text_.empty();
  }
  bool at(std::string_view word) const { return text_.starts_with(word); }
  bool skip(std::string_view word) {
    if (!at(word)) return false;
    text_.remove_prefix(word.size());
    return true;
  }
  // The text before `word`, which is passed; none where it does not come.
  std::optional<std::string_view> until(std::string_view word) {
    const std::size_t found = text_.find(word);
    if (found == std::string_view::npos) return {};
    const std::string_view part = text_.substr(0, found);
    text_.remove_prefix(found + word.size());
    return part;
  }
  std::string_view rest() const { return text_; }

 private:
  std::string_view text_;
};

// A tool's or an argument's name.
std::optional<std::string> name_of(std::string_view text) {
  text = trimmed(text);
  if (text.empty() || text.size() > kMostNameBytes || text.find_first_of("<>{}\"\n") != std::string_view::npos) return {};
  return std::string(text);
}

// Builds {"k": v, ...}.
class ArgumentsJson {
 public:
  void add(std::string_view key, const std::string& value_json) {
    text_ += text_.empty() ? "" : ", ";
    text_ += ordered_json(std::string(key)).dump(-1, ' ', false, ordered_json::error_handler_t::replace) + ": " + value_json;
  }
  std::string text() const { return "{" + text_ + "}"; }

 private:
  std::string text_;
};

// The raw text of the member `name` of an object that is known to be JSON; empty when it is not there.
std::string_view raw_member(std::string_view object, std::string_view name) {
  int depth = 0;
  bool in_string = false;
  std::size_t string_begin = 0, value_begin = 0;
  std::string_view key, found;
  const auto end_value = [&](std::size_t end) {
    if (value_begin && key == name) found = trimmed(object.substr(value_begin, end - value_begin));
    value_begin = 0;
  };
  for (std::size_t i = 0; i < object.size(); ++i) {
    const char c = object[i];
    if (in_string) {
      if (c == '\\') ++i;
      else if (c == '"') {
        in_string = false;
        if (depth == 1 && !value_begin) key = object.substr(string_begin, i - string_begin);
      }
    } else if (c == '"') {
      in_string = true;
      string_begin = i + 1;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (--depth == 0) end_value(i);
    } else if (depth == 1 && c == ':' && !value_begin) {
      value_begin = i + 1;
    } else if (depth == 1 && c == ',') {
      end_value(i);
    }
  }
  return found;
}

// "<function=NAME> <parameter=K> V </parameter> ... </function>", once or several times; in the manner of Qwen3-Coder,
// MiniMax and DSML, which differ in the words alone.
struct TagWords {
  std::string_view function, function_end;    // <function=  ...  </function>
  std::string_view parameter, parameter_end;  // <parameter= ...  </parameter>
  std::string_view close;                     // what ends a name: > or ">
  bool newline_around = false;                // one newline on each side of a value is markup
  bool string_flag = false;                   // the tag says string="true" or string="false" behind the name
};

Calls parse_tags(std::string_view body, const ArgumentTypes& types, const TagWords& words) {
  std::vector<ParsedCall> calls;
  Reader reader(body);
  while (!reader.ended()) {
    if (!reader.skip(words.function)) return {};
    const auto title = reader.until(words.close);
    const auto name = title ? name_of(*title) : std::nullopt;
    if (!name) return {};
    ArgumentsJson arguments;
    while (true) {
      reader.space();
      if (reader.skip(words.function_end)) break;
      if (!reader.skip(words.parameter)) return {};
      const auto label = reader.until(words.close);
      const auto key = label ? name_of(*label) : std::nullopt;
      if (!key) return {};
      bool is_text = false, is_json = false;
      if (words.string_flag) {
        is_text = reader.skip(" string=\"true\">");
        is_json = !is_text && reader.skip(" string=\"false\">");
        if (!is_text && !is_json && !reader.skip(">")) return {};
      }
      auto value = reader.until(words.parameter_end);
      if (!value) return {};
      if (words.newline_around) {
        if (value->starts_with('\n')) value->remove_prefix(1);
        if (value->ends_with('\n')) value->remove_suffix(1);
      }
      if (is_text) arguments.add(*key, ordered_json(std::string(*value)).dump(-1, ' ', false, ordered_json::error_handler_t::replace));
      else if (is_json && ordered_json::accept(*value)) arguments.add(*key, std::string(trimmed(*value)));
      else arguments.add(*key, types.value_json(*name, *key, *value));
    }
    calls.push_back({*name, arguments.text(), ""});
  }
  if (calls.empty()) return {};
  return calls;
}

Calls parse_glm(std::string_view body, const ArgumentTypes& types) {
  Reader reader(body);
  const std::size_t first = std::min(body.find("<arg_key>"), body.size());
  const auto name = name_of(body.substr(0, first));
  if (!name) return {};
  reader = Reader(body.substr(first));
  ArgumentsJson arguments;
  while (!reader.ended()) {
    if (!reader.skip("<arg_key>")) return {};
    const auto label = reader.until("</arg_key>");
    const auto key = label ? name_of(*label) : std::nullopt;
    reader.space();
    if (!key || !reader.skip("<arg_value>")) return {};
    const auto value = reader.until("</arg_value>");
    if (!value) return {};
    arguments.add(*key, types.value_json(*name, *key, *value));
  }
  return std::vector<ParsedCall>{{*name, arguments.text(), ""}};
}

Calls parse_qwen(std::string_view body, const ArgumentTypes& types) {
  const std::string_view text = trimmed(body);
  if (!text.starts_with("{"))
    return parse_tags(text, types, {"<function=", "</function>", "<parameter=", "</parameter>", ">", true, false});
  const auto call = parse_json_call(text);
  if (!call) return {};
  return std::vector<ParsedCall>{*call};
}

Calls parse_minimax(std::string_view body, const ArgumentTypes& types) {
  return parse_tags(body, types, {"<invoke name=\"", "</invoke>", "<parameter name=\"", "</parameter>", "\">", false, false});
}

Calls parse_dsml(std::string_view body, const ArgumentTypes& types) {
  std::string text(body);
  // The invoke tag ends with "> and the parameter tag goes on behind the quote: one word ends both names.
  for (std::size_t at = text.find("<｜DSML｜invoke name=\""); at != std::string::npos; at = text.find("<｜DSML｜invoke name=\"", at + 1)) {
    const std::size_t quote = text.find("\">", at);
    if (quote == std::string::npos) return {};
    text.erase(quote + 1, 1);
  }
  return parse_tags(text, types, {"<｜DSML｜invoke name=\"", "</｜DSML｜invoke>", "<｜DSML｜parameter name=\"", "</｜DSML｜parameter>", "\"", false, true});
}

Calls parse_toolcall_list(std::string_view body, const ArgumentTypes&) {
  const std::string_view text = trimmed(body);
  if (!text.starts_with("[") || !ordered_json::accept(text)) return {};
  std::vector<ParsedCall> calls;
  // The items' own texts, so that numbers keep every digit.
  int depth = 0;
  bool in_string = false;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      else if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth == 2) begin = i;
    } else if (c == '}' || c == ']') {
      if (--depth != 1) continue;
      const auto call = parse_json_call(text.substr(begin, i + 1 - begin));
      if (!call) return {};
      calls.push_back(*call);
    }
  }
  if (calls.empty()) return {};
  return calls;
}

bool is_json_object(std::string_view text) { return text.starts_with("{") && ordered_json::accept(text); }

Calls parse_deepseek(std::string_view body, const ArgumentTypes&) {
  std::vector<ParsedCall> calls;
  Reader reader(body);
  while (!reader.ended()) {
    if (!reader.skip("<｜tool▁call▁begin｜>")) return {};
    const auto front = reader.until("<｜tool▁sep｜>");
    const auto back = front ? reader.until("<｜tool▁call▁end｜>") : std::nullopt;
    if (!back) return {};
    std::string_view title = *front, arguments = trimmed(*back);
    if (const std::size_t fence = arguments.find("```json"); trimmed(title) == "function" && fence != std::string_view::npos) {
      // V3 and R1: the word "function" stands first, then the name, and the arguments in a code fence.
      title = arguments.substr(0, fence);
      arguments = arguments.substr(fence + 7);
      if (!arguments.ends_with("```")) return {};
      arguments = trimmed(arguments.substr(0, arguments.size() - 3));
    }
    const auto name = name_of(title);
    if (!name || !is_json_object(arguments)) return {};
    calls.push_back({*name, std::string(arguments), ""});
  }
  if (calls.empty()) return {};
  return calls;
}

Calls parse_kimi(std::string_view body, const ArgumentTypes&) {
  std::vector<ParsedCall> calls;
  Reader reader(body);
  while (!reader.ended()) {
    if (!reader.skip("<|tool_call_begin|>")) return {};
    const auto front = reader.until("<|tool_call_argument_begin|>");
    const auto back = front ? reader.until("<|tool_call_end|>") : std::nullopt;
    if (!back) return {};
    // functions.NAME:INDEX is the call's id.
    const std::string id(trimmed(*front));
    std::string_view title = id;
    if (title.starts_with("functions.")) title.remove_prefix(10);
    if (const std::size_t colon = title.rfind(':'); colon != std::string_view::npos && title.find_first_not_of("0123456789", colon + 1) == std::string_view::npos)
      title = title.substr(0, colon);
    const auto name = name_of(title);
    const std::string_view arguments = trimmed(*back);
    if (!name || !is_json_object(arguments)) return {};
    calls.push_back({*name, std::string(arguments), id});
  }
  if (calls.empty()) return {};
  return calls;
}

const std::vector<ToolCallFormat>& formats() {
  static const CallBlock glm = {"<tool_call>", "</tool_call>", parse_glm, false, true};
  static const CallBlock qwen = {"<tool_call>", "</tool_call>", parse_qwen, true};
  // In the order in which a template's signs are looked for: the special before the common.
  static const std::vector<ToolCallFormat> rows = {
      {MessageFormat::kimi, "kimi", {{"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", parse_kimi, false}}, {"<|tool_calls_section_begin|>"}},
      {MessageFormat::minimax, "minimax", {{"<minimax:tool_call>", "</minimax:tool_call>", parse_minimax, false}}, {"<minimax:tool_call>"}},
      {MessageFormat::deepseek, "deepseek",
       {{"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", parse_deepseek, false}, {"<｜DSML｜function_calls>", "</｜DSML｜function_calls>", parse_dsml, false}},
       {"tool▁calls▁begin", "｜DSML｜"}},
      {MessageFormat::nemotron, "nemotron", {{"<TOOLCALL>", "</TOOLCALL>", parse_toolcall_list, true}, qwen}, {"<TOOLCALL>"}},
      {MessageFormat::glm, "glm", {glm}, {"<arg_key>"}},
      {MessageFormat::qwen, "qwen", {qwen}, {"<tool_call>"}},
      {MessageFormat::llama, "llama", {}, {"<|python_tag|>", "\"parameters\": dictionary of argument"}},
      {MessageFormat::plain, "plain", {}, {}},
  };
  return rows;
}
}  // namespace

std::optional<ParsedCall> parse_json_call(std::string_view text) {
  if (!is_json_object(text)) return {};
  const ordered_json json = ordered_json::parse(text, nullptr, false);
  const auto name = json.find("name");
  if (name == json.end() || !name->is_string() || name->get_ref<const std::string&>().empty()) return {};
  for (const char* key : {"arguments", "parameters"}) {
    const auto arguments = json.find(key);
    if (arguments == json.end()) continue;
    if (arguments->is_object()) return ParsedCall{name->get<std::string>(), std::string(raw_member(text, key)), ""};
    // Some models write the arguments' JSON as a text.
    if (arguments->is_string() && is_json_object(arguments->get_ref<const std::string&>())) return ParsedCall{name->get<std::string>(), arguments->get<std::string>(), ""};
    return {};
  }
  return {};
}

const ToolCallFormat& tool_call_format(MessageFormat format) {
  return *std::find_if(formats().begin(), formats().end(), [&](const ToolCallFormat& row) { return row.format == format; });
}

std::string_view message_format_name(MessageFormat format) { return tool_call_format(format).name; }

std::vector<std::string> message_format_names() {
  std::vector<std::string> names;
  for (const ToolCallFormat& row : formats()) names.emplace_back(row.name);
  std::sort(names.begin(), names.end());
  return names;
}

MessageFormat message_format_by_name(std::string_view name) {
  for (const ToolCallFormat& row : formats())
    if (row.name == name) return row.format;
  fail(ErrorCode::invalid_argument, "the message format is '{}', allowed is {}{}", name.substr(0, 60), fmt::join(message_format_names(), ", "),
       did_you_mean(name, message_format_names()));
}

MessageFormat detect_message_format(std::string_view source) {
  for (const ToolCallFormat& row : formats())
    for (const std::string_view sign : row.signs)
      if (source.find(sign) != std::string_view::npos) return row.format;
  return MessageFormat::plain;
}

}  // namespace lockstep
