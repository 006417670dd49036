#include "runs/transcript_text.h"

#include <fmt/format.h>

#include <charconv>

#include "text/tokenizer/detokenizer.h"

namespace lockstep {

using Json = nlohmann::ordered_json;

// All pieces together are the text; a token that ends within a character has an empty one.
Json token_pieces(const Tokenizer& tokenizer, std::span<const std::int32_t> ids) {
  Json json = Json::array();
  Detokenizer text(tokenizer, false);
  for (const std::int32_t id : ids) json.push_back(text.push(id));
  if (!json.empty()) json.back() = json.back().get<std::string>() + text.flush();
  return json;
}

// The double whose shortest text is the float's: nine digits and the bits come back.
Json exact_numbers(std::span<const float> values) {
  Json json = Json::array();
  for (const float value : values) {
    const std::string text = fmt::format("{}", value);
    double number = value;  // stays where the text is no number
    std::from_chars(text.data(), text.data() + text.size(), number);
    json.push_back(number);
  }
  return json;
}

}  // namespace lockstep
