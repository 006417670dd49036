#include "api/openai/chat_messages.h"

#include <algorithm>
#include <set>

#include "base/choice.h"

namespace lockstep {
namespace {
constexpr std::size_t kMostMessages = 10000, kMostTools = 128, kMostCalls = 128;

// A string, or parts of text, which are joined by line feeds, since templates expect one string.
std::string content_text(const Json& value, const std::string& field) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) fail_field(field, fmt::format("is {}, allowed is a string or an array of parts", describe_json(value)));
  std::string text;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", field, i);
    require_object(value[i], at);
    if (!value[i].contains("type")) fail_field(at + ".type", "is missing");
    const std::string type = json_text(value[i]["type"], at + ".type");
    std::optional<std::string> part;
    JsonFields fields;
    fields.taken({"type"});
    for (const char* name : {"cache_control", "prompt_cache_breakpoint"}) fields.harmless(name);
    if (type == "text" || type == "refusal") {
      fields.custom(type, [&](const Json& json, const std::string& name) { part = json_text(json, name); });
      fields.read(value[i], at + ".");
      if (!part) fail_field(at + "." + type, "is missing");
      text += (i > 0 ? "\n" : "") + *part;
    } else if (type == "image_url" || type == "input_audio" || type == "file" || type == "video_url" || type == "audio_url") {
      fail_field(at + ".type", fmt::format("is {}, which is not offered: the models here read text alone", type), ErrorCode::unsupported);
    } else {
      fail_field(at + ".type", fmt::format("is {}, allowed is text{}", describe_json(value[i]["type"]), did_you_mean(type, {"text"})));
    }
  }
  return text;
}

Json tool_call(const Json& value, const std::string& field) {
  require_object(value, field);
  std::string id, type = "function", name, arguments;
  bool has_function = false;
  Json object = Json::object();
  JsonFields fields;
  fields.text("id", &id);
  fields.text("type", &type);
  fields.harmless("index");
  fields.custom("function", [&](const Json& json, const std::string& at) {
    require_object(json, at);
    has_function = true;
    JsonFields inner;
    inner.text("name", &name);
    inner.custom("arguments", [&](const Json& given, const std::string& where) {
      if (given.is_object()) {
        object = given;
        return;
      }
      arguments = json_text(given, where);
      if (arguments.empty()) return;
      object = json_in_text(arguments, where, "the text of a JSON object");
      if (!object.is_object()) fail_field(where, fmt::format("is {}, allowed is the text of a JSON object", describe_json(given)));
    });
    inner.read(json, at + ".");
  });
  fields.read(value, field + ".");
  if (type != "function") fail_field(field + ".type", fmt::format("is {}, allowed is function", describe_json(Json(type))));
  if (!has_function) fail_field(field + ".function", "is missing");
  check_function_name(name, field + ".function.name");
  return {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", object}}}};
}

Json message(const Json& value, const std::string& field) {
  require_object(value, field);
  if (!value.contains("role")) fail_field(field + ".role", "is missing");
  const std::string role = json_text(value["role"], field + ".role");
  const std::vector<std::string> roles = {"system", "developer", "user", "assistant", "tool"};
  if (role == "function") fail_field(field + ".role", "is function, which is not offered; allowed is its successor, tool", ErrorCode::unsupported);
  if (std::find(roles.begin(), roles.end(), role) == roles.end())
    fail_field(field + ".role", fmt::format("is {}, {}", describe_json(value["role"]), allowed_are(role, roles)));

  Json out{{"role", role == "developer" ? "system" : role}};
  std::optional<std::string> content;
  std::string tool_call_id;
  Json calls = Json::array();
  JsonFields fields;
  fields.taken({"role"});
  fields.harmless("cache_control");
  fields.custom("content", [&](const Json& json, const std::string& at) { content = content_text(json, at); });
  fields.custom("name", [&](const Json& json, const std::string& at) { out["name"] = json_text(json, at); });
  if (role == "assistant") {
    for (const char* name : {"reasoning_content", "reasoning"})
      fields.custom(name, [&](const Json& json, const std::string& at) { out["reasoning_content"] = json_text(json, at); });
    fields.custom("tool_calls", [&](const Json& json, const std::string& at) {
      if (!json.is_array() || json.size() > kMostCalls)
        fail_field(at, fmt::format("is {}, allowed is an array of at most {}", describe_json(json), kMostCalls));
      for (std::size_t i = 0; i < json.size(); ++i) calls.push_back(tool_call(json[i], fmt::format("{}[{}]", at, i)));
    });
    // A field of OpenAI's answers, so that an answer can be sent back unchanged.
    fields.custom("refusal", [&](const Json& json, const std::string& at) { content = json_text(json, at); });
    fields.only("annotations", {Json::array()});
    fields.only("audio", {});
    fields.only("function_call", {});
  }
  if (role == "tool") fields.text("tool_call_id", &tool_call_id);
  fields.read(value, field + ".");
  if (!content && calls.empty()) fail_field(field + ".content", "is missing");
  if (role == "tool" && tool_call_id.empty()) fail_field(field + ".tool_call_id", "is missing");
  out["content"] = content.value_or("");
  if (!calls.empty()) out["tool_calls"] = std::move(calls);
  if (role == "tool") out["tool_call_id"] = tool_call_id;
  return out;
}
}  // namespace

void check_function_name(const std::string& name, const std::string& field) {
  const auto allowed = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.'; };
  if (name.empty() || name.size() > 64 || !std::all_of(name.begin(), name.end(), allowed))
    fail_field(field, fmt::format("is {}, allowed are 1 to 64 letters, digits, _, - and .", name.empty() ? "missing" : describe_json(Json(name))));
}

Json chat_messages(const Json& value, const std::string& field) {
  if (!value.is_array() || value.size() > kMostMessages)
    fail_field(field, fmt::format("is {}, allowed is an array of at most {} messages", describe_json(value), kMostMessages));
  Json messages = Json::array();
  for (std::size_t i = 0; i < value.size(); ++i) messages.push_back(message(value[i], fmt::format("{}[{}]", field, i)));
  return messages;
}

Json chat_tools(const Json& value, const std::string& field) {
  if (!value.is_array() || value.size() > kMostTools)
    fail_field(field, fmt::format("is {}, allowed is an array of at most {} tools", describe_json(value), kMostTools));
  Json tools = Json::array();
  std::set<std::string> names;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", field, i);
    require_object(value[i], at);
    std::string type, name;
    bool has_function = false, strict = false;
    JsonFields fields;
    fields.text("type", &type);
    fields.harmless("cache_control");
    fields.custom("function", [&](const Json& json, const std::string& where) {
      require_object(json, where);
      has_function = true;
      JsonFields inner;
      inner.text("name", &name);
      inner.custom("description", [](const Json& text, const std::string& inside) { json_text(text, inside); });
      inner.custom("parameters", [](const Json& schema, const std::string& inside) {
        require_object(schema, inside);
        if (const auto kind = schema.find("type"); kind != schema.end() && *kind != "object")
          fail_field(inside + ".type", fmt::format("is {}, allowed is \"object\": arguments are one", describe_json(*kind)));
      });
      inner.boolean("strict", &strict);
      inner.read(json, where + ".");
    });
    fields.read(value[i], at + ".");
    if (type != "function")
      fail_field(at + ".type", type.empty() ? "is missing" : fmt::format("is {}, which is not offered; allowed is function", describe_json(Json(type))),
                 type.empty() ? ErrorCode::invalid_argument : ErrorCode::unsupported);
    if (!has_function) fail_field(at + ".function", "is missing");
    check_function_name(name, at + ".function.name");
    if (!names.insert(name).second) fail_field(at + ".function.name", fmt::format("is {}, which another tool has", describe_json(Json(name))));
    tools.push_back({{"type", "function"}, {"function", value[i]["function"]}});
  }
  return tools;
}

}  // namespace lockstep
