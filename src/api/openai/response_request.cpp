#include "api/openai/response_request.h"

#include "api/openai/chat_messages.h"
#include "api/openai/hold_fields.h"
#include "api/openai/no_op_fields.h"
#include "api/openai/response_input.h"
#include "api/openai/service_tier.h"
#include "base/json_members.h"

namespace lockstep {
namespace {
constexpr std::size_t kMostNotes = 16;

// Tools and tool_choice are one level flatter here than in chat completions: {"type": "function", "name": ...}. Errors name the fields of this form.
template <class F>
void as_in_responses(const F& work) {
  const auto renamed = [](std::string text) {
    for (std::size_t at; (at = text.find(".function.")) != std::string::npos;) text.replace(at, 10, ".");
    return text;
  };
  try {
    work();
  } catch (const RequestError& e) {
    throw RequestError(e.code(), renamed(e.param()), renamed(e.message()), e.status(), e.word());
  }
}

Json response_tools(const Json& value, const std::string& field) {
  if (!value.is_array()) fail_field(field, fmt::format("is {}, allowed is an array of tools", describe_json(value)));
  Json tools = Json::array();
  for (std::size_t i = 0; i < value.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", field, i);
    require_object(value[i], at);
    Json function = Json::object(), tool = Json::object();
    for (const auto& [name, given] : value[i].items()) {
      if (name == "type" || name == "cache_control") tool[name] = given;
      else if (!given.is_null()) add_member(function, name, given);
    }
    if (tool.value("type", Json()) == "function") tool["function"] = std::move(function);
    tools.push_back(std::move(tool));
  }
  as_in_responses([&] { tools = chat_tools(tools, field); });
  return tools;
}

ToolChoice response_tool_choice(const Json& value, const std::string& field) {
  if (!value.is_object()) return tool_choice_value(value, field);
  std::string type, name;
  JsonFields fields;
  fields.text("type", &type);
  fields.text("name", &name);
  if (value.contains("type") && value["type"] != "function")
    fail_field(field + ".type", fmt::format("is {}, which is not offered; allowed is function", describe_json(value["type"])), ErrorCode::unsupported);
  fields.read(value, field + ".");
  if (name.empty()) fail_field(field + ".name", "is missing");
  return {ToolChoice::Kind::named, name};
}

// {"format": {"type": "json_schema", "name": ..., "schema": ...}, "verbosity": "medium"}
void read_text(const Json& value, const std::string& field, ResponseFormat* format) {
  require_object(value, field);
  JsonFields fields;
  fields.only("verbosity", {"medium"});
  fields.custom("format", [&](const Json& json, const std::string& at) {
    require_object(json, at);
    const bool has_schema = json.value("type", Json()) == "json_schema";
    Json as_in_chat = Json::object();
    if (!has_schema) as_in_chat = json;
    else
      for (const auto& [name, given] : json.items()) {
        Json& its = as_in_chat[name == "type" ? "type" : "json_schema"];
        if (name == "type") {
          its = given;
        } else {
          if (its.is_null()) its = Json::object();
          add_member(its, name, given);
        }
      }
    const auto renamed = [](std::string text) {
      for (std::size_t found; (found = text.find(".json_schema")) != std::string::npos;) text.erase(found, 12);
      return text;
    };
    try {
      *format = response_format_value(as_in_chat, at);
    } catch (const RequestError& e) {
      throw RequestError(e.code(), renamed(e.param()), renamed(e.message()), e.status(), e.word());
    }
    format->field = renamed(format->field);
  });
  fields.read(value, field + ".");
}

Json notes(const Json& value, const std::string& field) {
  require_object(value, field);
  if (value.size() > kMostNotes) fail_field(field, fmt::format("has {} entries, allowed are at most {}", value.size(), kMostNotes));
  for (const auto& [name, note] : value.items())
    if (json_text(note, field + "." + shown(name)).size() > 512) fail_field(field + "." + shown(name), "has more than 512 bytes, allowed are 512");
  return value;
}
}  // namespace

ResponseRequest decode_response(std::string_view body, const PreviousMessages& previous, SamplingFields defaults) {
  ResponseRequest r;
  r.chat.sampling = std::move(defaults);
  SamplingFields& s = r.chat.sampling;
  s.max_tokens_field = "max_output_tokens";
  r.chat.prompt.messages_field = "input";
  Json object = parse_object(body);
  Json metadata = Json::object();
  std::string instructions, previous_id;
  std::optional<std::string> effort;

  JsonFields fields;
  fields.text("model", &s.model);
  fields.custom("input", [](const Json&, const std::string&) {});  // taken below, moved and not copied
  fields.text("instructions", &instructions);
  fields.text("previous_response_id", &previous_id);
  fields.boolean("store", &r.store);
  fields.boolean("stream", &s.stream);
  fields.custom("metadata", [&](const Json& value, const std::string& field) { metadata = notes(value, field); });
  fields.custom("tools", [&](const Json& value, const std::string& field) { r.chat.prompt.tools = response_tools(value, field); });
  fields.custom("tool_choice", [&](const Json& value, const std::string& field) { r.chat.tool_choice = response_tool_choice(value, field); });
  fields.boolean("parallel_tool_calls", &r.chat.parallel_tool_calls);
  fields.integer("max_output_tokens", &s.max_tokens, 1, kMostId);
  fields.custom("temperature", [&](const Json& value, const std::string& field) { s.temperature = temperature_value(value, field); });
  fields.custom("top_p", [&](const Json& value, const std::string& field) { s.top_p = top_p_value(value, field); });
  fields.custom("top_k", [&](const Json& value, const std::string& field) { s.top_k = top_k_value(value, field); });
  fields.number("min_p", &s.min_p, 0, 1);
  fields.number("presence_penalty", &s.presence_penalty, -2, 2);
  fields.number("frequency_penalty", &s.frequency_penalty, -2, 2);
  fields.number("repetition_penalty", &s.repetition_penalty, 0.01, 10);
  fields.custom("seed", [&](const Json& value, const std::string& field) { s.seed = seed_value(value, field); });
  fields.custom("text", [&](const Json& value, const std::string& field) { read_text(value, field, &s.response_format); });
  fields.custom("reasoning", [&](const Json& value, const std::string& field) {
    require_object(value, field);
    JsonFields inner;
    inner.custom("effort", [&](const Json& json, const std::string& at) { effort = json_text(json, at); });
    for (const char* name : {"summary", "generate_summary"}) inner.only(name, {"auto"});  // reasoning is told in full
    inner.read(value, field + ".");
  });
  fields.custom("stream_options", [](const Json& value, const std::string& field) {
    require_object(value, field);
    JsonFields options;
    options.harmless("include_obfuscation");
    options.read(value, field + ".");
  });
  fields.only("background", {false});
  fields.only("truncation", {"disabled"});
  fields.only("include", {Json::array()});
  fields.only("top_logprobs", {0});
  for (const char* name : {"access_programs", "background_options", "context_management", "conversation", "image", "max_tool_calls", "moderation", "prompt"})
    fields.only(name, {});
  for (const char* name : {"user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"}) fields.harmless(name);
  fields.boolean("keep_forward", &s.keep_forward);
  add_service_tier(fields, &s.service_tier);
  add_hold_fields(fields, &s);
  add_no_op_fields(fields);
  fields.read(object);

  ResponseInput talk(previous_id.empty() ? Json::array() : previous(previous_id));
  if (object.contains("input") && !object["input"].is_null()) talk.read(std::move(object["input"]), "input");
  r.items = talk.take_items();
  r.messages = talk.messages();
  Json& messages = r.chat.prompt.messages;
  if (!instructions.empty()) messages.push_back({{"role", "system"}, {"content", instructions}});
  messages.insert(messages.end(), r.messages.begin(), r.messages.end());
  if (r.messages.empty()) fail_field("input", "is missing or empty");
  if (effort) r.chat.prompt.template_arguments["reasoning_effort"] = *effort;
  check_sampling_fields(s, 1);
  check_hold_fields(s, 1);
  as_in_responses([&] { check_tool_choice(r.chat); });

  const auto given = [&](const char* name, Json otherwise) { return object.contains(name) && !object[name].is_null() ? object[name] : std::move(otherwise); };
  r.shown = {{"instructions", given("instructions", {})},
             {"max_output_tokens", given("max_output_tokens", {})},
             {"metadata", metadata},
             {"parallel_tool_calls", r.chat.parallel_tool_calls},
             {"previous_response_id", given("previous_response_id", {})},
             {"reasoning", given("reasoning", {{"effort", nullptr}, {"summary", nullptr}})},
             {"store", r.store},
             {"temperature", s.temperature},
             {"text", given("text", {{"format", {{"type", "text"}}}})},
             {"tool_choice", given("tool_choice", "auto")},
             {"tools", given("tools", Json::array())},
             {"top_p", s.top_p},
             {"truncation", "disabled"}};
  if (!r.shown["text"].contains("format") || r.shown["text"]["format"].is_null()) r.shown["text"]["format"] = {{"type", "text"}};
  return r;
}

}  // namespace lockstep
