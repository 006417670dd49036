#include "text/template/prompt_encoder.h"

namespace lockstep {

PromptEncoder::PromptEncoder(std::shared_ptr<const Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}

std::vector<std::int32_t> PromptEncoder::encode(const RenderedPrompt& prompt) const { return tokenizer_->encode_guarded(prompt.text, prompt.untrusted); }

}  // namespace lockstep
