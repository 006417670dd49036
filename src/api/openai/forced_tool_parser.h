// Parses, as they arrive, tool calls that a grammar forced into plain JSON: [{"name": "f", "arguments": {...}}, ...] for tool_choice "required", the
// arguments alone for a named tool. The grammar guarantees the form, so this tracks positions and does not validate. Text that ends early
// (max_tokens) gives the calls up to there. One answer, one thread.
//   ForcedToolParser parser(name_or_empty); parser.push(text, delta); parser.flush(delta);
#pragma once
#include <optional>
#include <string>

#include "api/openai/answer_parser.h"

namespace lockstep {

class ForcedToolParser : public AnswerParser {
 public:
  // `name`: of the one tool; empty: a list of calls.
  explicit ForcedToolParser(std::string name) : name_(std::move(name)), named_(!name_.empty()) {}
  void push(std::string_view text, ChoiceDelta& delta) override;
  void flush(ChoiceDelta&) override {}

 private:
  void begin_call(ChoiceDelta& delta, const std::string& name);
  void value_character(char c);

  std::string name_;
  bool named_;
  std::size_t calls_ = 0;
  std::string head_;  // of a call, up to its arguments
  bool inside_ = false, in_string_ = false, escaped_ = false;
  int depth_ = 0;  // of the arguments
};

}  // namespace lockstep
