#include "api/openai/draft_fields.h"

#include "api/sampling_values.h"

namespace lockstep {
namespace {
std::string prediction_content(const Json& content, const std::string& field) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) fail_field(field, fmt::format("is {}, allowed is a string or an array of text parts", describe_json(content)));
  std::string text;
  for (std::size_t i = 0; i < content.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", field, i);
    require_object(content[i], at);
    std::string type;
    JsonFields fields;
    fields.text("type", &type);
    fields.custom("text", [&text](const Json& part, const std::string& where) { text += json_text(part, where); });
    for (const char* name : {"cache_control", "prompt_cache_breakpoint"}) fields.harmless(name);
    fields.read(content[i], at + ".");
    if (type != "text") fail_field(at + ".type", fmt::format("is {}, allowed is text", describe_json(Json(type))));
  }
  return text;
}

// {"type": "content", "content": "text"} or with parts of text; or Fireworks' form, the text alone.
std::string prediction_text(const Json& value, const std::string& field) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_object()) fail_field(field, fmt::format("is {}, allowed is an object or a string", describe_json(value)));
  std::string type, text;
  JsonFields fields;
  fields.text("type", &type);
  fields.custom("content", [&text](const Json& content, const std::string& at) { text = prediction_content(content, at); });
  fields.read(value, field + ".");
  if (type != "content") fail_field(field + ".type", fmt::format("is {}, allowed is content", describe_json(Json(type))));
  return text;
}

void read_speculative(const Json& value, const std::string& field, DraftOrder* drafts) {
  require_object(value, field);
  JsonFields fields;
  fields.custom("mode", [&](const Json& json, const std::string& at) {
    drafts->mode = json_text(json, at);
    try {
      parse_drafts(*drafts->mode, 1, at);
    } catch (const Error& e) {
      throw RequestError(e.code(), at, e.message());
    }
  });
  fields.integer("tokens", &drafts->tokens, 1, DraftOptions::kMostTokens);
  fields.custom("acceptance", [&](const Json& json, const std::string& at) {
    const std::string name = json_text(json, at);
    try {
      drafts->acceptance = parse_acceptance(name, at);
    } catch (const Error& e) {
      throw RequestError(e.code(), at, e.message());
    }
  });
  fields.custom("draft", [&](const Json& json, const std::string& at) { drafts->ids = json_token_ids(json, at); });
  fields.read(value, field + ".");
}
}  // namespace

void add_draft_fields(JsonFields& fields, DraftOrder* drafts) {
  fields.custom("speculative", [drafts](const Json& value, const std::string& field) { read_speculative(value, field, drafts); });
  fields.custom("prediction", [drafts](const Json& value, const std::string& field) { drafts->text = prediction_text(value, field); });
}

void add_speculation_field(JsonFields& fields, DraftOrder* drafts) {
  fields.custom("speculation", [drafts](const Json& value, const std::string& field) {
    if (value.is_string()) {
      drafts->text = value.get<std::string>();
      return;
    }
    drafts->ids = json_token_ids(value, field);
    drafts->ids_field = field;
  });
}

}  // namespace lockstep
