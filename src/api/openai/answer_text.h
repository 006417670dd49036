// The text of one choice as its tokens come: detokenized, cut at stop strings, and taken apart into reasoning, content and
// tool calls where a parser of the API's says so. Knows no wire format. One choice, one thread.
//   AnswerText text(tokenizer, rules, prompt, nullptr); text.push(id, delta); ... text.flush(delta);
#pragma once
#include <memory>

#include "api/openai/answer.h"
#include "serving/text_stream.h"

namespace lockstep {

// Takes a message apart, in pieces of any size.
class AnswerParser {
 public:
  virtual ~AnswerParser() = default;
  virtual void push(std::string_view text, ChoiceDelta& delta) = 0;
  virtual void flush(ChoiceDelta& delta) = 0;
  // The message has ended, whatever follows.
  virtual bool over() const { return false; }
};

class AnswerText {
 public:
  struct Rules {
    std::vector<std::string> stops;
    SpecialText special = SpecialText::hidden;
  };
  // Without a parser all text is content. `tokenizer` outlives this object.
  AnswerText(const Tokenizer& tokenizer, const Rules& rules, std::span<const std::int32_t> prompt, std::unique_ptr<AnswerParser> parser)
      : text_(tokenizer, rules.stops, rules.special), parser_(std::move(parser)) {
    text_.begin_after(prompt);
  }
  void push(std::int32_t id, ChoiceDelta& delta) { take(text_.push(id), delta); }
  void flush(ChoiceDelta& delta) {
    take(text_.flush(), delta);
    if (parser_) parser_->flush(delta);
  }
  bool stopped() const { return text_.stopped() || (parser_ && parser_->over()); }

 private:
  void take(std::string text, ChoiceDelta& delta) {
    if (text.empty()) return;
    if (parser_) parser_->push(text, delta);
    else delta.content += text;
  }
  TextStream text_;
  std::unique_ptr<AnswerParser> parser_;
};

}  // namespace lockstep
