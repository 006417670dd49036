#include "serving/prompt_renderer.h"

#include <algorithm>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/file.h"
#include "checkpoint/model_source.h"

namespace lockstep {

using nlohmann::ordered_json;

namespace {
ordered_json parse_request(const std::string& text) {
  try {
    return read_json(text);
  } catch (const Error& e) {
    fail(e.code(), "the request {}", e.message());
  }
}

std::map<std::string, std::string> special_tokens_of(const ordered_json& request) {
  std::map<std::string, std::string> tokens;
  const auto given = request.find("special_tokens");
  if (given == request.end() || given->is_null()) return tokens;
  if (!given->is_object()) fail(ErrorCode::invalid_argument, "special_tokens is {}, allowed is an object of texts", given->type_name());
  for (const auto& [name, value] : given->items()) {
    if (!value.is_string()) fail(ErrorCode::invalid_argument, "special_tokens.{} is {}, allowed is a text", name, value.type_name());
    tokens.emplace(name, value.get<std::string>());
  }
  return tokens;
}

bool flag(const ordered_json& request, const char* name, bool otherwise) {
  const auto given = request.find(name);
  if (given == request.end() || given->is_null()) return otherwise;
  if (!given->is_boolean()) fail(ErrorCode::invalid_argument, "{} is {}, allowed is true or false", name, given->type_name());
  return given->get<bool>();
}

ordered_json ranges(const std::vector<jinja::ByteRange>& list) {
  ordered_json json = ordered_json::array();
  for (const jinja::ByteRange& range : list) json.push_back({range.begin, range.end});
  return json;
}
}  // namespace

PromptRenderer::PromptRenderer(const PromptRendererSettings& settings) {
  constexpr std::size_t kMostTemplateBytes = std::size_t{16} << 20;
  std::map<std::string, std::string> tokens;
  if (!settings.model.empty()) {
    const std::unique_ptr<const FolderFiles> files = open_folder_files(settings.model);
    template_ = ChatTemplate::from_folder(*files);
    if (template_) tokens = template_->special_tokens();
    if (settings.ids || (settings.ids_if_any && Tokenizer::in_folder(*files))) encoder_.emplace(std::make_shared<Tokenizer>(Tokenizer::from_folder(*files)));
  } else if (settings.ids) {
    fail(ErrorCode::invalid_argument, "token ids need a model, and none is given");
  }
  if (!settings.template_file.empty()) template_ = ChatTemplate::from_source(read_file(settings.template_file, kMostTemplateBytes), std::move(tokens));
}

ordered_json PromptRenderer::answer(const ordered_json& request) const {
  static const std::vector<std::string> names = {"messages",  "tools",    "add_generation_prompt", "continue_final_message", "extra",
                                                 "unix_time", "template", "special_tokens"};
  if (!request.is_object()) fail(ErrorCode::invalid_argument, "the request is {}, allowed is an object", request.type_name());
  for (const auto& [name, value] : request.items())
    if (std::find(names.begin(), names.end(), name) == names.end())
      fail(ErrorCode::invalid_argument, "the request has the unknown field '{}'{}", name, did_you_mean(name, names));

  ChatTemplateInput input;
  const auto take = [&](const char* name) { return request.contains(name) ? request.at(name) : ordered_json(); };
  input.messages = take("messages");
  input.tools = take("tools");
  input.extra = take("extra");
  input.continue_final_message = flag(request, "continue_final_message", false);
  input.add_generation_prompt = flag(request, "add_generation_prompt", !input.continue_final_message);
  const ordered_json time = take("unix_time");
  if (!time.is_null() && !time.is_number_integer()) fail(ErrorCode::invalid_argument, "unix_time is {}, allowed is an integer", time.type_name());
  if (time.is_number_integer()) input.unix_time = time.get<std::int64_t>();

  std::optional<ChatTemplate> own;
  const ordered_json source = take("template");
  if (source.is_string()) own = ChatTemplate::from_source(source.get<std::string>(), special_tokens_of(request));
  else if (!source.is_null()) fail(ErrorCode::invalid_argument, "template is {}, allowed is a text", source.type_name());
  const std::optional<ChatTemplate>& chat = own ? own : template_;
  if (!chat) fail(ErrorCode::not_found, "there is no chat template: no chat_template.jinja, and no \"chat_template\" in tokenizer_config.json");

  const RenderedPrompt prompt = chat->render_marked(input);
  ordered_json json{{"text", prompt.text}, {"untrusted", ranges(prompt.untrusted)}, {"generated", ranges(prompt.generated)}};
  if (encoder_) json["ids"] = encoder_->encode(prompt);
  return json;
}

std::string PromptRenderer::answer_line(const std::string& request) const {
  ordered_json json;
  try {
    json = answer(parse_request(request));
  } catch (const Error& e) {
    json = {{"error", e.what()}, {"code", error_code_name(e.code())}};
  }
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace lockstep
