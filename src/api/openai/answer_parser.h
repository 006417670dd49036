// The interface that splits the text of one choice into reasoning, content and tool calls, as it arrives in pieces. Knows no wire format. One choice,
// one thread.
//   parser->push("<think>hm", delta); ... parser->flush(delta);
#pragma once
#include <string_view>

#include "api/openai/answer.h"

namespace lockstep {

class AnswerParser {
 public:
  virtual ~AnswerParser() = default;
  virtual void push(std::string_view text, ChoiceDelta& delta) = 0;
  virtual void flush(ChoiceDelta& delta) = 0;
  // Whether the message has ended; text that follows is ignored.
  virtual bool over() const { return false; }
};

}  // namespace lockstep
