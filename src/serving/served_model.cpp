#include "serving/served_model.h"

#include <algorithm>

#include "base/error.h"
#include "serving/tool_prompt.h"

namespace lockstep {

ServedModel::ServedModel(const ServingModel& parts, std::size_t grammar_bytes) : parts_(parts), profile_digest_(parts.runtime->profile.digest()) {
  parts_.weights = nullptr;
  parts_.executor = nullptr;
  for (std::int64_t id : parts_.runtime->model->facts().eos_tokens) end_tokens_.push_back(static_cast<std::int32_t>(id));
  for (const std::int32_t id : parts_.defaults.end_tokens) {
    if (id >= parts_.runtime->model->facts().vocabulary)
      fail(ErrorCode::corrupt_file,
           "generation_config.json: 'eos_token_id' has {}, allowed is below config.json's 'vocab_size' {} (--generation-config none leaves the file out)", id,
           parts_.runtime->model->facts().vocabulary);
    if (std::find(end_tokens_.begin(), end_tokens_.end(), id) == end_tokens_.end()) end_tokens_.push_back(id);
  }
  grammars_ = std::make_unique<Grammars>(parts_.tokenizer, end_tokens_, grammar_bytes);
  if (parts_.tokenizer && parts_.chat_template) prompt_encoder_ = std::make_unique<const PromptEncoder>(parts_.tokenizer);
  if (parts_.chat_template) {
    call_markup_ = lockstep::call_markup(parts_.message_format, parts_.tools_in_system ? std::string_view() : parts_.chat_template->source());
    shows_tools_ = parts_.tools_in_system || lockstep::shows_tools(*parts_.chat_template);
  }
}

const Tokenizer& ServedModel::tokenizer() const {
  if (!parts_.tokenizer) fail(ErrorCode::unsupported, "model '{}' has no tokenizer.json, so it takes token ids only", parts_.name);
  return *parts_.tokenizer;
}

std::vector<std::int32_t> ServedModel::encode_chat(const ChatTemplateInput& input) const {
  if (!prompt_encoder_)
    fail(ErrorCode::unsupported, "model '{}' has no {}, so it has no chat; it continues {}", parts_.name,
         parts_.tokenizer ? "chat template (chat_template.jinja, or \"chat_template\" in tokenizer_config.json)" : "tokenizer.json",
         parts_.tokenizer ? "texts" : "token ids");
  return prompt_encoder_->encode(parts_.chat_template->render_marked(parts_.tools_in_system ? with_tools_told(input, call_markup_) : input));
}

}  // namespace lockstep
