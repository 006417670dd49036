#include "serving/served_defaults.h"

#include <map>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/model_source.h"
#include "serving/tool_prompt.h"

namespace lockstep {

void add_chat(ServingModel& serving, const std::string& folder, const std::string& template_file, const std::string& message_format,
              const std::string& tool_format) {
  constexpr std::size_t kMostTemplateBytes = std::size_t{16} << 20;
  std::optional<ChatTemplate> chat;
  if (template_file.empty()) {
    chat = ChatTemplate::from_folder(*open_folder_files(folder));
  } else {
    std::map<std::string, std::string> special_tokens;
    try {
      if (const auto own = ChatTemplate::from_folder(*open_folder_files(folder))) special_tokens = own->special_tokens();
    } catch (const Error&) {  // the template that is being replaced
    }
    chat = ChatTemplate::from_source(read_file(template_file, kMostTemplateBytes), std::move(special_tokens));
  }
  if (!chat) return;
  serving.tools_in_system = !tool_format.empty();
  serving.message_format = serving.tools_in_system  ? tool_format_by_name(tool_format)
                           : message_format.empty() ? detect_message_format(chat->source())
                                                    : message_format_by_name(message_format);
  serving.chat_template = std::make_shared<const ChatTemplate>(std::move(*chat));
}

void add_generation_config(ServingModel& serving, const std::string& folder, const std::string& which) {
  if (which != "none") serving.defaults = read_generation_defaults(*open_folder_files(folder));
}

void add_served_defaults(ServingModel& serving, const std::string& folder, const ServedDefaults& defaults) {
  try {
    add_chat(serving, folder, defaults.chat_template, defaults.message_format, defaults.tool_format);
  } catch (const Error& e) {
    if (!defaults.chat_template.empty() || !defaults.message_format.empty() || !defaults.tool_format.empty()) throw;
    log_warning("the model's chat template is not understood, so there is no chat (--chat-template gives the first model of a server another)",
                {{"model", serving.name}, {"reason", e.what()}});
  }
  add_generation_config(serving, folder, defaults.generation_config);
  if (serving.defaults.says_sampling())
    log_info("generation_config.json says how requests are sampled that do not say it; --generation-config none: from the model's own distribution",
             {{"model", serving.name}, {"defaults", to_json(serving.defaults).dump()}});
}

}  // namespace lockstep
