// Parses reasoning and tool calls in the model's own format (text/message) into deltas of OpenAI's API. One answer, one thread.
//   NativeParser parser(MessageFormat::glm, tools, starts_in_reasoning);
#pragma once
#include <memory>
#include <utility>

#include "api/json_fields.h"
#include "api/openai/answer_parser.h"

namespace lockstep {

class NativeParser : public AnswerParser {
 public:
  // `calls_only`: a grammar allows only calls, so other text is markup of a call that max_tokens cut off, and is left out.
  // `one_call`: the message ends with its first call.
  NativeParser(MessageFormat format, std::shared_ptr<const ArgumentTypes> tools, bool starts_in_reasoning, bool calls_only = false, bool one_call = false)
      : parser_(format, std::move(tools), starts_in_reasoning), calls_only_(calls_only) {
    if (one_call) parser_.end_with_first_call();
  }
  void push(std::string_view text, ChoiceDelta& delta) override { take(parser_.push(text), delta); }
  void flush(ChoiceDelta& delta) override { take(parser_.flush(), delta); }
  bool over() const override { return parser_.over(); }

 private:
  void take(MessageDelta&& message, ChoiceDelta& delta) {
    ChoiceDelta more;
    more.reasoning = std::move(message.reasoning);
    if (!calls_only_) more.content = std::move(message.content);
    more.tool_calls = std::move(message.tool_calls);
    delta.append(std::move(more));
  }
  MessageParser parser_;
  bool calls_only_;
};

}  // namespace lockstep
