// Splits text into the pieces that BPE merges within: the object "pre_tokenizer" of a byte-level tokenizer.json
// (Split, Digits, ByteLevel, or a Sequence of them that ends in ByteLevel).
// Knows no vocabulary. Thread rule: immutable once read.
//   PreTokenizer::Arena arena; for (std::string_view piece : pre_tokenizer.split(text, arena)) ...
#pragma once
#include <nlohmann/json_fwd.hpp>

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class PreTokenizer {
 public:
  using Pieces = std::vector<std::string_view>;
  using Arena = std::deque<std::string>;  // owns the pieces that got a space in front

  // corrupt_file or unsupported names the construct.
  static PreTokenizer from_json(const nlohmann::json& json);
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // The pieces of `text` (valid UTF-8), none empty. They live as long as `text` and `arena`.
  Pieces split(std::string_view text, Arena& arena) const;

  class Step;

 private:
  PreTokenizer();
  std::vector<std::unique_ptr<const Step>> steps_;
};

}  // namespace lockstep
