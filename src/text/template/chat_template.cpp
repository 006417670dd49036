#include "text/template/chat_template.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <set>

#include "base/bounded_json.h"
#include "base/error.h"
#include "text/template/interpreter.h"
#include "text/template/parser.h"
#include "text/template/scopes.h"
#include "text/template/special_tokens.h"
#include "text/utf8.h"

namespace lockstep {

using nlohmann::ordered_json;
using namespace jinja;

namespace {
struct Compiled {
  std::string source;
  Template parsed;
};

std::shared_ptr<const Compiled> compile(std::string source, const TemplateLimits& limits) {
  if (source.size() > limits.source_bytes)
    fail(ErrorCode::resource_exhausted, "the chat template has {} bytes, allowed is up to {}", source.size(), limits.source_bytes);
  auto compiled = std::make_shared<Compiled>();
  compiled->source = std::move(source);
  compiled->parsed = parse_template(utf8_lossy(compiled->source));
  resolve_scopes(compiled->parsed);
  return compiled;
}
}  // namespace

struct ChatTemplate::State {
  std::shared_ptr<const Compiled> main, tool_use;  // tool_use: maybe none
  std::map<std::string, std::string> special_tokens;
  TemplateLimits limits;
};

ChatTemplate::ChatTemplate(std::shared_ptr<const State> state) : state_(std::move(state)) {}

const std::string& ChatTemplate::source() const { return state_->main->source; }
const std::map<std::string, std::string>& ChatTemplate::special_tokens() const { return state_->special_tokens; }

ChatTemplate ChatTemplate::from_source(std::string source, std::map<std::string, std::string> special_tokens, const TemplateLimits& limits) {
  auto state = std::make_shared<State>();
  state->main = compile(std::move(source), limits);
  state->special_tokens = std::move(special_tokens);
  state->limits = limits;
  return ChatTemplate(std::move(state));
}

// --- from a model's folder

namespace {
constexpr std::size_t kMostConfigBytes = std::size_t{64} << 20;

std::optional<ordered_json> read_config(const FolderFiles& files, const std::string& name) {
  if (!files.has(name)) return {};
  // Some models name thousands of tokens in one object.
  ordered_json json = read_json_or_null(files.read(name, kMostConfigBytes), {.key_comparisons = 400'000'000});
  if (!json.is_object()) fail(ErrorCode::corrupt_file, "{} is not a JSON object", files.place(name));
  return json;
}

void read_special_tokens(const ordered_json& config, std::map<std::string, std::string>& tokens) {
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    if (!config.contains(name)) continue;
    const ordered_json& token = config.at(name);
    if (token.is_string()) tokens.emplace(name, token.get<std::string>());
    else if (token.is_object() && token.contains("content") && token.at("content").is_string()) tokens.emplace(name, token.at("content").get<std::string>());
  }
}
}  // namespace

std::map<std::string, std::string> special_tokens_of(const FolderFiles& files) {
  std::map<std::string, std::string> tokens;
  for (const char* file : {"tokenizer_config.json", "special_tokens_map.json"})
    if (const auto config = read_config(files, file)) read_special_tokens(*config, tokens);
  return tokens;
}

std::optional<ChatTemplate> ChatTemplate::from_folder(const FolderFiles& files, const TemplateLimits& limits) {
  auto state = std::make_shared<State>();
  state->limits = limits;
  const auto config = read_config(files, "tokenizer_config.json");
  state->special_tokens = special_tokens_of(files);

  const auto take = [&](std::string name, std::string source) {
    auto compiled = with_context("reading the chat template of " + files.label(), [&] { return compile(std::move(source), limits); });
    (name == "tool_use" ? state->tool_use : state->main) = std::move(compiled);
  };
  const std::string own = "chat_template.jinja", of_tools = "additional_chat_templates/tool_use.jinja";
  if (files.has(own)) {
    take("default", files.read(own, limits.source_bytes));
    if (files.has(of_tools)) take("tool_use", files.read(of_tools, limits.source_bytes));
    return ChatTemplate(std::move(state));
  }
  ordered_json found;
  if (const auto json = read_config(files, "chat_template.json"); json && json->contains("chat_template")) found = json->at("chat_template");
  else if (config && config->contains("chat_template")) found = config->at("chat_template");
  if (found.is_null()) return {};
  if (found.is_string()) {
    take("default", found.get<std::string>());
    return ChatTemplate(std::move(state));
  }
  const auto wrong = [&] {
    fail(ErrorCode::corrupt_file, "\"chat_template\" in {} is {}, allowed is a text, or a list of {{\"name\", \"template\"}} with one named default",
         files.label(), utf8_excerpt(found.dump(-1, ' ', false, ordered_json::error_handler_t::replace)));
  };
  if (!found.is_array()) wrong();
  for (const ordered_json& entry : found) {
    if (!entry.is_object() || !entry.contains("name") || !entry.contains("template") || !entry["name"].is_string() || !entry["template"].is_string()) wrong();
    if (entry["name"] == "default" || entry["name"] == "tool_use") take(entry["name"].get<std::string>(), entry["template"].get<std::string>());
  }
  if (!state->main) wrong();
  return ChatTemplate(std::move(state));
}

// --- rendering

namespace {
constexpr std::string_view kContinueTag = "CONTINUE_FINAL_MESSAGE_TAG ";

// Templates build special tokens from roles ('<|' + role + '|>'), so a role that is one of these is no user's text.
bool is_usual_role(const std::string& role) {
  static const std::set<std::string> roles = {"system",  "user",        "assistant", "tool",        "developer", "function",
                                              "ipython", "observation", "model",     "environment", "documents", "tools"};
  return roles.count(role) > 0;
}

// Copying, printing and freeing JSON recurse: what is nested too deep is refused first.
void check_depth(const ordered_json& json, std::string_view name, int most) {
  if (most < 0) fail(ErrorCode::resource_exhausted, "{} is nested too deep for a chat template", name);
  if (json.is_structured())
    for (const ordered_json& inner : json) check_depth(inner, name, most - 1);
}

// One message as transformers hands it over: without nulls, and with its reasoning under every name templates know.
ordered_json prepared(const ordered_json& message, std::size_t index) {
  if (!message.is_object()) fail(ErrorCode::invalid_argument, "messages[{}] is {}, allowed is an object", index, message.type_name());
  ordered_json plain = ordered_json::object();
  ordered_json reasoning;
  for (const char* name : {"reasoning_content", "thinking", "reasoning"})
    if (reasoning.is_null() && message.contains(name)) reasoning = message.at(name);
  if (!reasoning.is_null()) plain["thinking"] = reasoning;
  for (const auto& [key, value] : message.items())
    if (!value.is_null()) plain[key] = value;
  if (!reasoning.is_null()) plain["reasoning_content"] = reasoning;
  return plain;
}

Value message_value(const ordered_json& message) {
  Dict dict;
  for (const auto& [key, value] : message.items()) {
    const bool own = key == "role" && value.is_string() && is_usual_role(value.get_ref<const std::string&>());
    dict.set(Value::of(Text(utf8_lossy(key), true)), value_of_json(value, !own));
  }
  return make_dict(std::move(dict));
}

// Marks the end of the last message's text with a tag, and returns that text.
std::string tag_final_message(ordered_json& message, const std::string& source) {
  if (!message.contains("content")) fail(ErrorCode::invalid_argument, "continue_final_message is set, and the final message has no content to continue");
  if (source.find("content") == std::string::npos)
    fail(ErrorCode::invalid_argument, "continue_final_message is set, and the chat template does not read a message's content");
  ordered_json& content = message["content"];
  ordered_json* text = nullptr;
  if (content.is_string()) text = &content;
  if (content.is_array())
    for (ordered_json& part : content)
      if (part.is_object() && part.contains("text") && part["text"].is_string()) text = &part["text"];
  if (!text) fail(ErrorCode::invalid_argument, "continue_final_message is set, and the final message has no text to continue");
  std::string before = text->get<std::string>();
  *text = before + std::string(kContinueTag);
  return before;
}

// Cuts the prompt where the tag stands.
Text cut_at_tag(const Text& text, const std::string& final_text) {
  const std::string_view tag = kContinueTag.substr(0, kContinueTag.size() - 1);
  const Text wanted = strip(Text(utf8_lossy(final_text)), Side::both);
  const std::size_t at = text.view().rfind(tag);
  if (at == std::string_view::npos || text.view().find(wanted.view()) == std::string_view::npos)
    fail(ErrorCode::invalid_argument, "continue_final_message is set, and the chat template changes or leaves out the final message");
  const Text before = text.slice(0, at);
  // Where the template trimmed the message, it trimmed the space behind the tag too.
  return text.view().substr(at, kContinueTag.size()) == kContinueTag ? before : strip(before, Side::right);
}
}  // namespace

RenderedPrompt ChatTemplate::render_marked(const ChatTemplateInput& input) const {
  if (!input.messages.is_array() || input.messages.empty())
    fail(ErrorCode::invalid_argument, "messages is {}, allowed is a list of at least one message",
         input.messages.is_array() ? "empty" : input.messages.type_name());
  if (!input.tools.is_null() && !input.tools.is_array()) fail(ErrorCode::invalid_argument, "tools is {}, allowed is a list", input.tools.type_name());
  if (!input.extra.is_null() && !input.extra.is_object())
    fail(ErrorCode::invalid_argument, "the template's extra variables are {}, allowed is an object", input.extra.type_name());
  check_depth(input.messages, "messages", state_->limits.value_depth);
  check_depth(input.tools, "tools", state_->limits.value_depth);
  check_depth(input.extra, "the template's extra variables", state_->limits.value_depth);
  if (input.continue_final_message && input.add_generation_prompt)
    fail(ErrorCode::invalid_argument, "continue_final_message and add_generation_prompt are both set, allowed is one of them");
  const Compiled& compiled = !input.tools.is_null() && state_->tool_use ? *state_->tool_use : *state_->main;

  const RenderBudget budget(state_->limits);
  std::string final_text;
  List messages;
  for (std::size_t i = 0; i < input.messages.size(); ++i) {
    ordered_json message = prepared(input.messages[i], i);
    if (input.continue_final_message && i + 1 == input.messages.size()) final_text = tag_final_message(message, compiled.source);
    messages.push_back(message_value(message));
  }
  Dict variables;
  for (const auto& [name, token] : state_->special_tokens) variables.set(Value::text(name), Value::text(utf8_lossy(token)));
  static const std::set<std::string> reserved = {"messages", "tools", "add_generation_prompt", "continue_final_message"};
  variables.set(Value::text("documents"), Value::none());
  if (input.extra.is_object())
    for (const auto& [name, value] : input.extra.items()) {
      if (reserved.count(name)) fail(ErrorCode::invalid_argument, "the template's extra variables hold '{}', which has a field of its own", name);
      variables.set(Value::text(utf8_lossy(name)), value_of_json(value, true));
    }
  variables.set(Value::text("messages"), make_list(std::move(messages)));
  variables.set(Value::text("tools"), value_of_json(input.tools, true));
  variables.set(Value::text("add_generation_prompt"), Value::of(input.add_generation_prompt));

  Interpreter interpreter(compiled.parsed, variables, input.unix_time != 0 ? input.unix_time : static_cast<std::int64_t>(std::time(nullptr)));
  Rendering rendering = interpreter.render(state_->limits.output_bytes);
  if (input.continue_final_message) {
    rendering.text = cut_at_tag(rendering.text, final_text);
    rendering.generations.clear();
  }
  return {rendering.text.bytes(), rendering.text.foreign(), std::move(rendering.generations)};
}

}  // namespace lockstep
