#include "api/openai/draft_fields.h"

#include "api/sampling_values.h"

namespace lockstep {
namespace {
// {"type": "content", "content": "text"}, or its parts.
std::string prediction_text(const Json& value, const std::string& field) {
  require_object(value, field);
  std::string type, text;
  JsonFields fields;
  fields.text("type", &type);
  fields.custom("content", [&](const Json& content, const std::string& at) {
    if (content.is_string()) {
      text = content.get<std::string>();
      return;
    }
    if (!content.is_array()) fail_field(at, fmt::format("is {}, allowed is a string or an array of text parts", describe_json(content)));
    for (std::size_t i = 0; i < content.size(); ++i) {
      const std::string part = fmt::format("{}[{}]", at, i);
      require_object(content[i], part);
      std::string kind, own;
      JsonFields inner;
      inner.text("type", &kind);
      inner.text("text", &own);
      inner.read(content[i], part + ".");
      if (kind != "text") fail_field(part + ".type", fmt::format("is {}, allowed is text", describe_json(Json(kind))));
      text += own;
    }
  });
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
  fields.custom("draft", [&](const Json& json, const std::string& at) { drafts->ids = json_token_ids(json, at); });
  fields.read(value, field + ".");
}
}  // namespace

void add_draft_fields(JsonFields& fields, DraftOrder* drafts) {
  fields.custom("speculative", [drafts](const Json& value, const std::string& field) { read_speculative(value, field, drafts); });
  fields.custom("prediction", [drafts](const Json& value, const std::string& field) { drafts->text = prediction_text(value, field); });
}

}  // namespace lockstep
