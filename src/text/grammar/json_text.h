// Writes texts and values in JSON, as parts of a rule.
//   JsonText json(builder); json.string_of(rule, from, to, dfa); int rule = json.plain_string(0, 10);
// Characters are escaped only where they must be (\" \\ \b \f \n \r \t, other controls as \u00XX), everything else is UTF-8; objects and
// arrays may have one space after , and : and no other. Only a plain string (no pattern) may write any escape, surrogate pairs
// included, lone surrogates never. Knows no schema. Used by one thread at a time.
#pragma once
#include <nlohmann/json.hpp>

#include <map>

#include "text/grammar/machine.h"
#include "text/grammar/text_dfa.h"

namespace lockstep {

class JsonText {
 public:
  // `escape_less_than`: "<" is written as \u003c, so that no value can contain markup.
  explicit JsonText(MachineBuilder& builder, bool escape_less_than = false) : builder_(builder), escape_less_than_(escape_less_than) {}
  // Quotes and what `dfa` accepts between them.
  void string_of(int rule, int from, int to, const TextDfa& dfa);
  // The characters of an automaton as they are, for texts that need no escapes (numbers).
  void bare(int rule, int from, int to, const TextDfa& dfa);
  // A fixed text or value.
  void quoted(int rule, int from, int to, const std::string& text);
  void value(int rule, int from, int to, const nlohmann::ordered_json& value);
  void space(int rule, int from, int to);  // at most one
  // A rule for a string of `low` to `high` characters of any kind; made once for each pair of bounds.
  int plain_string(std::int64_t low, std::int64_t high);

 private:
  using ByteRange = std::pair<std::uint8_t, std::uint8_t>;
  using Sequence = std::vector<ByteRange>;
  void automaton(int rule, int from, int to, const TextDfa& dfa, bool escape);
  void sequences(CodePointRange range, bool escape, std::vector<Sequence>& out) const;
  static void utf8(char32_t low, char32_t high, std::vector<Sequence>& out);

  std::string dumped(const nlohmann::ordered_json& value) const;

  MachineBuilder& builder_;
  bool escape_less_than_;
  std::map<std::pair<std::int64_t, std::int64_t>, int> strings_;
};

}  // namespace lockstep
