// The object "post_processor" of a tokenizer.json: tokens put around a text (TemplateProcessing of a single text) and offsets
// trimmed of white space (ByteLevel), or a Sequence of them. Knows ids and offsets, no text. Thread rule: immutable once read.
//   if (add_special) ids.insert(ids.begin(), p.prefix().begin(), p.prefix().end());
#pragma once
#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Characters (code points) of the input, the first included, the last not.
struct CharacterRange {
  std::size_t begin = 0, end = 0;
  bool operator==(const CharacterRange&) const = default;
};

class PostProcessor {
 public:
  // null: does nothing. corrupt_file or unsupported names the construct.
  static PostProcessor from_json(const nlohmann::json& json);
  // Puts `prefix` in front.
  static PostProcessor of_prefix(std::vector<std::int32_t> prefix);

  const std::vector<std::int32_t>& prefix() const { return prefix_; }
  const std::vector<std::int32_t>& suffix() const { return suffix_; }

  // A token on its way: `text` as the vocabulary has it, or as it stood in the input when it is an added one.
  struct Token {
    std::int32_t id;
    std::string_view text;
    CharacterRange offsets;
  };
  // All steps in their order; those that add tokens only with add_special. text_of gives an added token's text.
  void apply(std::vector<Token>& tokens, bool add_special, const std::function<std::string_view(std::int32_t)>& text_of) const;

 private:
  struct Step {
    bool trims = false, prefix_space = false;  // ByteLevel
    std::vector<std::int32_t> before, after;   // TemplateProcessing
  };
  void read(const nlohmann::json& value, const std::string& where, int depth);
  void read_template(const nlohmann::json& value, const std::string& where);
  static void trim(std::vector<Token>& tokens, bool prefix_space);
  std::vector<Step> steps_;
  std::vector<std::int32_t> prefix_, suffix_;
};

}  // namespace lockstep
