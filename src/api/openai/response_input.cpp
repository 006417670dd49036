#include "api/openai/response_input.h"

#include <algorithm>

#include "api/openai/chat_messages.h"
#include "base/client_work.h"
#include "base/entropy.h"
#include "base/hash.h"

namespace lockstep {
namespace {
constexpr std::size_t kMostItems = 10000;

// Content of a message, or the output of a function: a string, or parts of text, which become lines.
std::string text_of(const Json& value, const std::string& field) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) fail_field(field, fmt::format("is {}, allowed is a string or an array of parts", describe_json(value)));
  std::string text;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", field, i);
    require_object(value[i], at);
    if (!value[i].contains("type")) fail_field(at + ".type", "is missing");
    const std::string type = json_text(value[i]["type"], at + ".type");
    const std::vector<std::string> texts = {"input_text", "output_text", "text", "reasoning_text", "summary_text", "refusal"};
    if (type == "input_image" || type == "input_file" || type == "input_audio")
      fail_field(at + ".type", fmt::format("is {}, which is not offered: the models here read text alone", type), ErrorCode::unsupported);
    if (std::find(texts.begin(), texts.end(), type) == texts.end())
      fail_field(at + ".type",
                 fmt::format("is {}, allowed are input_text, output_text and refusal{}", describe_json(value[i]["type"]), did_you_mean(type, texts)));
    std::optional<std::string> part;
    JsonFields fields;
    fields.taken({"type"});
    fields.custom(type == "refusal" ? "refusal" : "text", [&](const Json& json, const std::string& name) { part = json_text(json, name); });
    for (const char* name : {"annotations", "logprobs"}) fields.harmless(name);
    for (const char* name : {"cache_control", "prompt_cache_breakpoint"}) fields.harmless(name);
    fields.read(value[i], at + ".");
    if (!part) fail_field(at + (type == "refusal" ? ".refusal" : ".text"), "is missing");
    text += (i > 0 ? "\n" : "") + *part;
  }
  return text;
}
}  // namespace

void ResponseInput::read(Json value, const std::string& field) {
  if (value.is_string()) {
    messages_.push_back({{"role", "user"}, {"content", value}});
    list({{"type", "message"}, {"role", "user"}, {"content", value}}, "msg_");
    return;
  }
  if (!value.is_array() || value.size() > kMostItems)
    fail_field(field, fmt::format("is {}, allowed is a string or an array of at most {} items", describe_json(value), kMostItems));
  for (std::size_t i = 0; i < value.size(); ++i) item(std::move(value[i]), fmt::format("{}[{}]", field, i));
}

void ResponseInput::item(Json&& value, const std::string& field) {
  ClientWork::check();
  require_object(value, field);
  const std::string type = value.contains("type") ? json_text(value["type"], field + ".type") : "message";
  if (type == "message") message(std::move(value), field);
  else if (type == "reasoning") reasoning(std::move(value), field);
  else if (type == "function_call") function_call(std::move(value), field);
  else if (type == "function_call_output") function_output(std::move(value), field);
  else
    fail_field(field + ".type",
               fmt::format("is {}, which is not offered; allowed are message, reasoning, function_call and function_call_output{}", describe_json(Json(type)),
                           did_you_mean(type, {"message", "reasoning", "function_call", "function_call_output"})),
               ErrorCode::unsupported);
}

void ResponseInput::message(Json&& value, const std::string& field) {
  std::string role;
  std::optional<std::string> content;
  JsonFields fields;
  fields.taken({"type"});
  for (const char* name : {"id", "status", "phase"}) fields.harmless(name);
  fields.choice("role", &role, {"user", "assistant", "system", "developer"});
  fields.custom("content", [&](const Json& json, const std::string& at) { content = text_of(json, at); });
  fields.read(value, field + ".");
  if (role.empty()) fail_field(field + ".role", "is missing");
  if (!content) fail_field(field + ".content", "is missing");
  value["type"] = "message";
  list(std::move(value), "msg_");
  if (role == "assistant") {
    Json& answer = open_assistant();
    if (!answer["content"].get_ref<const std::string&>().empty() || answer.contains("tool_calls")) {
      answering_ = false;
      open_assistant()["content"] = *content;
    } else {
      answer["content"] = *content;
    }
    return;
  }
  answering_ = false;
  messages_.push_back({{"role", role == "developer" ? "system" : role}, {"content", *content}});
}

void ResponseInput::reasoning(Json&& value, const std::string& field) {
  std::string text, summary;
  JsonFields fields;
  fields.taken({"type"});
  for (const char* name : {"id", "status"}) fields.harmless(name);
  fields.custom("content", [&](const Json& json, const std::string& at) { text = text_of(json, at); });
  fields.custom("summary", [&](const Json& json, const std::string& at) { summary = text_of(json, at); });
  fields.only("encrypted_content", {""});
  fields.read(value, field + ".");
  list(std::move(value), "rs_");
  answering_ = false;
  open_assistant()["reasoning_content"] = text.empty() ? summary : text;
}

void ResponseInput::function_call(Json&& value, const std::string& field) {
  std::string call_id, name, arguments;
  JsonFields fields;
  fields.taken({"type"});
  for (const char* known : {"id", "status"}) fields.harmless(known);
  fields.text("call_id", &call_id);
  fields.text("name", &name);
  fields.text("arguments", &arguments);
  for (const char* known : {"namespace", "caller", "async"}) fields.only(known, {});
  fields.read(value, field + ".");
  if (call_id.empty()) fail_field(field + ".call_id", "is missing");
  check_function_name(name, field + ".name");
  const Json object = arguments.empty() ? Json::object() : json_in_text(arguments, field + ".arguments", "the text of a JSON object");
  if (!object.is_object()) fail_field(field + ".arguments", fmt::format("is {}, allowed is the text of a JSON object", describe_json(Json(arguments))));
  list(std::move(value), "fc_");
  open_assistant()["tool_calls"].push_back({{"id", call_id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", object}}}});
}

void ResponseInput::function_output(Json&& value, const std::string& field) {
  std::string call_id;
  std::optional<std::string> output;
  JsonFields fields;
  fields.taken({"type"});
  for (const char* known : {"id", "status"}) fields.harmless(known);
  fields.text("call_id", &call_id);
  fields.custom("output", [&](const Json& json, const std::string& at) { output = text_of(json, at); });
  fields.read(value, field + ".");
  if (call_id.empty()) fail_field(field + ".call_id", "is missing");
  if (!output) fail_field(field + ".output", "is missing");
  list(std::move(value), "fco_");
  answering_ = false;
  messages_.push_back({{"role", "tool"}, {"content", *output}, {"tool_call_id", call_id}});
}

Json& ResponseInput::open_assistant() {
  if (!answering_) messages_.push_back({{"role", "assistant"}, {"content", ""}});
  answering_ = true;
  return messages_.back();
}

void ResponseInput::list(Json item, std::string_view id_prefix) {
  if (!item.contains("id") || !item["id"].is_string()) item["id"] = std::string(id_prefix) + hex64(random_bits()) + hex64(random_bits());
  if (item["type"] == "message" && item["content"].is_string())
    item["content"] = Json::array({{{"type", item["role"] == "assistant" ? "output_text" : "input_text"}, {"text", item["content"]}}});
  if (item["type"] != "reasoning" && !item.contains("status")) item["status"] = "completed";
  items_.push_back(std::move(item));
}

}  // namespace lockstep
