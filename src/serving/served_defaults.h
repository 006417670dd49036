// The chat template, message format and sampling defaults of a model that is to be served, from its folder or from options. Any thread.
//   ServingModel serving = serving_model(opened); add_chat(serving, "models/countdown-glm"); add_generation_config(serving, folder, "auto");
#pragma once
#include <string>

#include "serving/served_model.h"

namespace lockstep {

// Sets the chat template: that of `template_file`, else that of `folder`. The message format is `message_format` by name, else the one that the template's
// source shows. `tool_format`: tools are described in the system message, in that format. Without any template nothing changes.
// Errors: those of ChatTemplate and of reading; invalid_argument for a format's name.
void add_chat(ServingModel& serving, const std::string& folder, const std::string& template_file = {}, const std::string& message_format = {},
              const std::string& tool_format = {});

// Sets the defaults of sampling from generation_config.json of `folder`. `which` is "auto", or "none": nothing changes.
// Errors: those of read_generation_defaults.
void add_generation_config(ServingModel& serving, const std::string& folder, const std::string& which);

// Both, for a server. Where the folder's own template cannot be read and no option replaces it, logs that and serves without chat. Logs the defaults of
// sampling.
struct ServedDefaults {
  std::string chat_template, message_format, tool_format;  // arguments of add_chat
  std::string generation_config = "auto";
};
void add_served_defaults(ServingModel& serving, const std::string& folder, const ServedDefaults& defaults);

}  // namespace lockstep
