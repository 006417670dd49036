// A model's chat template: renders messages and tools to a prompt, the same text as transformers' apply_chat_template.
//   const auto chat = ChatTemplate::from_folder("models/m"); std::string prompt = chat->render({.messages = messages});
// It tracks which parts of the prompt came from messages, tools and extras, so that what a user typed can be encoded
// without ever becoming a special token. Roles with the usual names count as the template's own.
// Knows no token ids. Thread rule: immutable; any thread renders.
#pragma once
#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/folder_files.h"
#include "text/template/budget.h"
#include "text/template/text.h"

namespace lockstep {

struct ChatTemplateInput {
  nlohmann::ordered_json messages;  // an array of objects; keys whose value is null do not reach the template
  nlohmann::ordered_json tools;     // an array, or null for none
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the prompt ends inside the last message; not with add_generation_prompt
  nlohmann::ordered_json extra;         // an object: further variables (chat_template_kwargs), or null
  std::int64_t unix_time = 0;           // for strftime_now, in the local time zone; 0: now
};

// Bytes of `text`, ascending and disjoint.
struct RenderedPrompt {
  std::string text;
  std::vector<jinja::ByteRange> untrusted;  // written by a message, a tool or an extra, not by the template
  std::vector<jinja::ByteRange> generated;  // of {% generation %} blocks: what the assistant wrote
};

class ChatTemplate {
 public:
  // special_tokens: bos_token, eos_token, ... as the template names them. Errors: invalid_argument or unsupported, with the
  // line; resource_exhausted for a source that is too long or nested too deep.
  static ChatTemplate from_source(std::string source, std::map<std::string, std::string> special_tokens = {}, const jinja::TemplateLimits& limits = {});
  // chat_template.jinja, or chat_template.json, or "chat_template" of tokenizer_config.json (a text, or several by name:
  // "tool_use" serves requests with tools, "default" the others), with that file's special tokens. None where there is none.
  static std::optional<ChatTemplate> from_folder(const FolderFiles& files, const jinja::TemplateLimits& limits = {});
  static std::optional<ChatTemplate> from_folder(const std::filesystem::path& folder, const jinja::TemplateLimits& limits = {}) {
    return from_folder(FolderOnDisk(folder), limits);
  }

  // Errors: invalid_argument for what the template refuses (raise_exception: its words) or cannot do with these values;
  // resource_exhausted at a limit.
  RenderedPrompt render_marked(const ChatTemplateInput& input) const;
  std::string render(const ChatTemplateInput& input) const { return render_marked(input).text; }

  const std::string& source() const;  // of the default one
  const std::map<std::string, std::string>& special_tokens() const;

 private:
  struct State;
  explicit ChatTemplate(std::shared_ptr<const State> state);
  std::shared_ptr<const State> state_;
};

}  // namespace lockstep
