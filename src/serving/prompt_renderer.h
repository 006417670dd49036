// `lockstep render`: applies a chat template to a JSON request (messages, tools, ...) and prints the prompt's text, its token ids where there is a
// tokenizer, and which parts of it are the request's own text. Knows no model weights. Immutable; any thread.
//   PromptRenderer renderer({.model = "models/m"}); std::string line = renderer.answer_line(request_line);
#pragma once
#include <nlohmann/json.hpp>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "text/template/prompt_encoder.h"

namespace lockstep {

struct PromptRendererSettings {
  std::filesystem::path model;          // empty: no tokenizer, and every template comes from elsewhere
  std::filesystem::path template_file;  // instead of the model's; empty: the model's
  bool ids = false;                     // answers carry "ids"
  bool ids_if_any = false;              // the same where the model has a tokenizer
};

class PromptRenderer {
 public:
  // not_found where `ids` is set and the model has no tokenizer.
  explicit PromptRenderer(const PromptRendererSettings& settings);

  // {"messages": [...], "tools": [...] or null, "add_generation_prompt": bool, "continue_final_message": bool, "extra": {...},
  // "unix_time": seconds, "template": source, "special_tokens": {...}}; all but messages may be left out.
  // {"text": ..., "untrusted": [[begin, end], ...], "generated": [...], "ids": [...]}; ranges are bytes of the text.
  nlohmann::ordered_json answer(const nlohmann::ordered_json& request) const;
  // The same as lines of JSON; what goes wrong is an answer too: {"error": sentence, "code": name}.
  std::string answer_line(const std::string& request) const;

 private:
  std::optional<ChatTemplate> template_;
  std::optional<PromptEncoder> encoder_;
};

}  // namespace lockstep
