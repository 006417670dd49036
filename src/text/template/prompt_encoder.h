// Token ids of a rendered prompt in which no message can forge a special token: a special token's text counts as one only
// where the template wrote all of it. Elsewhere it is ordinary text. A prompt without such text has exactly the ids of its
// whole text, since what stands between special tokens is encoded in one piece, whoever wrote it.
// Knows no template. Thread rule: immutable; any thread.
//   PromptEncoder encoder(tokenizer); std::vector<std::int32_t> ids = encoder.encode(chat.render_marked(input));
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/template/chat_template.h"
#include "text/tokenizer.h"

namespace lockstep {

class PromptEncoder {
 public:
  explicit PromptEncoder(std::shared_ptr<const Tokenizer> tokenizer);
  std::vector<std::int32_t> encode(const RenderedPrompt& prompt) const;

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<std::string> special_;  // the texts, longest first: where two begin at one place, the longer one counts
};

}  // namespace lockstep
