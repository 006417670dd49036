// `lockstep render`: messages through a model's chat template, to the prompt's text and token ids.
#include <cstdio>
#include <iostream>
#include <iterator>

#include "api/openai/chat_messages.h"
#include "base/bounded_json.h"
#include "base/file.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/render_train.h"
#include "serving/prompt_renderer.h"

namespace lockstep {
namespace {
using nlohmann::ordered_json;
constexpr std::size_t kMostInputBytes = std::size_t{64} << 20;

struct RenderSettings {
  std::string model, messages = "-", tools, template_file, train, end_token;
  bool generation_prompt = true, continue_final = false, ids = false, json = false, jsonl = false;
  std::vector<std::string> variables;
};

bool parse(const Arguments& arguments, RenderSettings& s) {
  OptionTable table("render", "Renders messages to a prompt with a chat template: its text, or with --ids its token ids.",
                    {"lockstep render --model DIR --messages chat.json",
                     "lockstep render --model DIR --messages chat.json --tools tools.json --set enable_thinking=false --ids",
                     "lockstep render --model DIR --train data.jsonl", "lockstep render --template chat_template.jinja --jsonl < requests.jsonl"});
  const auto with_lines = [&] { table.refused("with --jsonl, whose lines say it", [&s] { return s.jsonl; }); };
  table.model("model", &s.model, "Model folder or GGUF file, for its template and tokenizer; this or --template");
  table.input("template", &s.template_file, "FILE", "A Jinja file instead of the model's template");
  table.input("messages", &s.messages, "FILE",
              "A JSON array of messages, or an object with messages and tools, read as the server reads them; -: standard input");
  with_lines();
  table.input("tools", &s.tools, "FILE", "A JSON array of tools");
  with_lines();
  table.input("train", &s.train, "FILE",
              "Instead of messages, training data as for `train sft --data`: prints every line's tokens, and which are trained (in colour on a terminal)");
  with_lines();
  table.text("end-token", &s.end_token, "TOKEN", "With --train, as in `train sft`");
  table.refused("without --train", [&s] { return s.train.empty(); });
  table.flag("generation-prompt", &s.generation_prompt, "End with the start of the assistant's answer");
  with_lines();
  table.flag("continue", &s.continue_final, "End inside the last message, for the model to continue it");
  with_lines();
  table.texts("set", &s.variables, "NAME=VALUE", "A variable for the template; VALUE is JSON or else text");
  with_lines();
  table.flag("ids", &s.ids, "Print token ids instead of text");
  table.flag(
      "jsonl", &s.jsonl,
      "Standard input is one JSON request a line, standard output one JSON answer a line; messages reach the template as they are, as with transformers");
  add_json_option(table, &s.json, "Print one JSON object: text, ids, and the byte ranges that the template did not write itself");
  with_lines();
  if (!table.parse(arguments)) return false;
  if (s.model.empty() && s.template_file.empty() && !s.jsonl) throw UsageError("--model or --template is needed");
  return true;
}

ordered_json read_input(const std::string& path) {
  const std::string text = path == "-" ? std::string(std::istreambuf_iterator<char>(std::cin), {}) : read_file(path, kMostInputBytes);
  try {
    return read_json(text);
  } catch (const Error& e) {
    fail(e.code(), "{} {}", path == "-" ? "standard input" : path, e.message());
  }
}

ordered_json request_of(const RenderSettings& s) {
  ordered_json request = read_input(s.messages);
  if (request.is_array()) request = {{"messages", std::move(request)}};
  if (!request.is_object()) fail(ErrorCode::invalid_argument, "{} is {}, allowed is an array of messages or an object", s.messages, request.type_name());
  if (!s.tools.empty()) request["tools"] = read_input(s.tools);
  if (request.contains("messages")) request["messages"] = chat_messages(request["messages"], "messages");
  if (request.contains("tools") && !request["tools"].is_null()) request["tools"] = chat_tools(request["tools"], "tools");
  if (!s.generation_prompt || s.continue_final) request["add_generation_prompt"] = false;
  if (s.continue_final) request["continue_final_message"] = true;
  for (const std::string& variable : s.variables) {
    const std::size_t equals = variable.find('=');
    if (equals == std::string::npos || equals == 0) throw UsageError(fmt::format("--set is '{}', allowed is NAME=VALUE", variable.substr(0, 60)));
    const std::string value = variable.substr(equals + 1);
    ordered_json json = read_json_or_null(value);
    request["extra"][variable.substr(0, equals)] = json.is_null() && value != "null" ? ordered_json(value) : std::move(json);
  }
  return request;
}
}  // namespace

int render_command(const Arguments& arguments) {
  RenderSettings s;
  if (!parse(arguments, s)) return kExitOk;
  if (!s.train.empty())
    return show_training_data({.model = s.model, .template_file = s.template_file, .file = s.train, .end_token = s.end_token, .json = s.json});
  const PromptRenderer renderer({.model = s.model, .template_file = s.template_file, .ids = s.ids, .ids_if_any = s.json || s.jsonl});
  if (s.jsonl) {
    for (std::string line; std::getline(std::cin, line);) {
      if (line.size() > kMostInputBytes) fail(ErrorCode::resource_exhausted, "a line has {} bytes, allowed is up to {}", line.size(), kMostInputBytes);
      std::printf("%s\n", renderer.answer_line(line).c_str());
      std::fflush(stdout);
    }
    return kExitOk;
  }
  const ordered_json answer = renderer.answer(request_of(s));
  if (s.json) std::printf("%s\n", answer.dump().c_str());
  else if (s.ids) std::printf("%s\n", answer["ids"].dump().c_str());
  else if (const auto& text = answer["text"].get_ref<const std::string&>(); !text.empty()) std::fwrite(text.data(), 1, text.size(), stdout);
  return kExitOk;
}

}  // namespace lockstep
