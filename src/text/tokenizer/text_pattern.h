// The pattern that Split and Replace of a tokenizer.json look for: {"Regex": ...} or {"String": ...}.
//   const TextPattern p = TextPattern::from_json(object.object("pattern"), object.path("pattern"));
// Thread rule: immutable once read.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/regex.h"

namespace lockstep {

class TextPattern {
 public:
  static TextPattern from_json(const nlohmann::json& json, const std::string& where);
  explicit TextPattern(Regex regex) : regex_(std::move(regex)) {}

  // Calls on_match(TextRange) for all matches in order, without overlap.
  template <class F>
  void for_each(std::string_view text, F&& on_match) const {
    if (regex_) return regex_->for_each(text, on_match);
    for (std::size_t at = text.find(literal_); at != std::string_view::npos; at = text.find(literal_, at + literal_.size())) {
      on_match(TextRange{at, at + literal_.size()});
    }
  }
  std::vector<TextRange> find_all(std::string_view text) const;

 private:
  explicit TextPattern(std::string literal) : literal_(std::move(literal)) {}
  std::optional<Regex> regex_;
  std::string literal_;
};

}  // namespace lockstep
