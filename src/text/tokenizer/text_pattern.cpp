#include "text/tokenizer/text_pattern.h"

#include "base/error.h"
#include "text/tokenizer/json_object.h"

namespace lockstep {

TextPattern TextPattern::from_json(const nlohmann::json& json, const std::string& where) {
  JsonObject pattern(json, where);
  std::optional<TextPattern> result;
  if (pattern.has("Regex")) {
    result = TextPattern(Regex(pattern.text("Regex")));
  } else {
    std::string literal = pattern.text("String");
    if (literal.empty()) fail(ErrorCode::unsupported, "{} is empty, allowed is some text", pattern.path("String"));
    result = TextPattern(std::move(literal));
  }
  pattern.finish();
  return std::move(*result);
}

std::vector<TextRange> TextPattern::find_all(std::string_view text) const {
  std::vector<TextRange> matches;
  for_each(text, [&](const TextRange& match) { matches.push_back(match); });
  return matches;
}

}  // namespace lockstep
