// The model of a generation service as requests see it: names, tokenizer, the chat template and the tokens that end a turn, grammars. Immutable but
// for the cache of grammars. Knows no engine and no weights. Any thread.
//   const ServedModel model(parts, Grammars::kKeptBytes); model.encode_chat(talk); model.end_tokens();
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/runtime.h"
#include "serving/executor.h"
#include "serving/generation_defaults.h"
#include "serving/grammars.h"
#include "text/message/message_parser.h"
#include "text/template/prompt_encoder.h"
#include "text/tokenizer/tokenizer.h"

namespace lockstep {

// What a service is made of. Engine and trainer may share runtime and executor.
struct ServingModel {
  std::string name;
  std::shared_ptr<Runtime> runtime;
  std::shared_ptr<const WeightSet> weights;
  std::shared_ptr<const Tokenizer> tokenizer;         // null: token ids only
  std::shared_ptr<Executor> executor;                 // null: one of its own
  std::shared_ptr<const ChatTemplate> chat_template;  // null: no chat
  MessageFormat message_format{};                     // how it writes reasoning and tool calls
  bool tools_in_system = false;                       // the template ignores tools: the system message lists them (serving/tool_prompt.h)
  GenerationDefaults defaults;                        // of its generation_config.json; nothing: none is read
  // Loads the layer of multi-token prediction onto the runtime, for drafts; null: it has none.
  std::function<std::shared_ptr<const WeightSet>()> mtp_weights = nullptr;
};

class ServedModel {
 public:
  // Keeps all parts but the weights and the executor. Error corrupt_file: an end token of generation_config.json outside the vocabulary.
  ServedModel(const ServingModel& parts, std::size_t grammar_bytes);

  const std::string& name() const { return parts_.name; }
  const Tokenizer& tokenizer() const;  // Error unsupported when there is none
  bool has_tokenizer() const { return parts_.tokenizer != nullptr; }
  bool has_chat() const { return prompt_encoder_ != nullptr; }
  bool shows_tools() const { return shows_tools_; }  // a chat prompt shows the tools that a request offers
  // Token ids of a chat; no message can forge a special token. Errors: unsupported without a chat template; the template's.
  std::vector<std::int32_t> encode_chat(const ChatTemplateInput& input) const;
  MessageFormat message_format() const { return parts_.message_format; }
  const CallMarkup& call_markup() const { return call_markup_; }  // the marks of message_format(), as the chat template has them
  // From config.json and generation_config.json; each ends a turn.
  const std::vector<std::int32_t>& end_tokens() const { return end_tokens_; }
  const GenerationDefaults& defaults() const { return parts_.defaults; }
  Grammars& grammars() const { return *grammars_; }
  std::int64_t hidden() const { return parts_.runtime->model->facts().hidden; }  // numbers of a pooled prompt
  ExpertShape expert_shape() const { return parts_.runtime->model->facts().expert_shape(); }
  const std::string& profile_name() const { return parts_.runtime->profile.name; }
  const std::string& profile_digest() const { return profile_digest_; }

 private:
  ServingModel parts_;
  std::vector<std::int32_t> end_tokens_;
  std::unique_ptr<Grammars> grammars_;
  std::unique_ptr<const PromptEncoder> prompt_encoder_;  // null: no chat
  CallMarkup call_markup_;
  bool shows_tools_ = false;
  std::string profile_digest_;
};

}  // namespace lockstep
