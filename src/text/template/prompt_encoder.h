// Encodes a rendered prompt so that no message can forge a special token: a special token's text counts as one only
// where the template wrote all of it; elsewhere it is ordinary text.
//   PromptEncoder encoder(tokenizer); std::vector<std::int32_t> ids = encoder.encode(chat.render_marked(input));
// A prompt without such text has exactly the ids of its whole text, since it is encoded in one piece. Tokens that are not special (<think>,
// <tool_call> in some families) are recognised in messages too: chats that are handed back contain them.
// Knows no template. Thread rule: immutable; any thread.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "text/template/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace lockstep {

class PromptEncoder {
 public:
  explicit PromptEncoder(std::shared_ptr<const Tokenizer> tokenizer);
  std::vector<std::int32_t> encode(const RenderedPrompt& prompt) const;

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
};

}  // namespace lockstep
