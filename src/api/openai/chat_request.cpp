#include "api/openai/chat_request.h"

#include <algorithm>
#include <limits>

#include "api/openai/chat_messages.h"
#include "api/openai/hold_fields.h"
#include "api/openai/no_op_fields.h"
#include "base/json_members.h"

namespace lockstep {
ToolChoice tool_choice_value(const Json& value, const std::string& field) {
  if (value.is_string()) {
    if (value == "none") return {ToolChoice::Kind::none, {}};
    if (value == "auto") return {ToolChoice::Kind::automatic, {}};
    if (value == "required") return {ToolChoice::Kind::required, {}};
    fail_field(field, fmt::format("is {}, allowed are none, auto, required and {{\"type\": \"function\", \"function\": {{\"name\": ...}}}}{}",
                                  describe_json(value), did_you_mean(value.get<std::string>(), {"none", "auto", "required"})));
  }
  require_object(value, field);
  std::string type, name;
  JsonFields fields;
  fields.text("type", &type);
  fields.custom("function", [&](const Json& json, const std::string& at) {
    require_object(json, at);
    JsonFields inner;
    inner.text("name", &name);
    inner.read(json, at + ".");
  });
  fields.read(value, field + ".");
  if (type != "function") fail_field(field + ".type", fmt::format("is {}, allowed is function", describe_json(Json(type))));
  if (name.empty()) fail_field(field + ".function.name", "is missing");
  return {ToolChoice::Kind::named, name};
}

void check_tool_choice(const ChatRequest& r) {
  const Json& tools = r.prompt.tools;
  const ToolChoice& choice = r.tool_choice;
  if (choice.kind == ToolChoice::Kind::required && tools.empty()) fail_field("tool_choice", "is required, and there are no tools");
  if (choice.kind != ToolChoice::Kind::named) return;
  std::vector<std::string> names;
  for (const Json& tool : tools) names.push_back(tool["function"]["name"]);
  if (std::find(names.begin(), names.end(), choice.name) == names.end())
    fail_field("tool_choice.function.name", fmt::format("is {}, which no tool has{}", describe_json(Json(choice.name)), did_you_mean(choice.name, names)));
}

void add_chat_prompt_fields(JsonFields& fields, ChatPrompt* prompt) {
  fields.custom("messages", [prompt](const Json& value, const std::string& field) { prompt->messages = chat_messages(value, field); });
  fields.custom("tools", [prompt](const Json& value, const std::string& field) { prompt->tools = chat_tools(value, field); });
  fields.boolean("add_generation_prompt", &prompt->add_generation_prompt);
  fields.boolean("continue_final_message", &prompt->continue_final_message);
  fields.custom("chat_template_kwargs", [prompt](const Json& value, const std::string& field) {
    require_object(value, field);
    for (const auto& member : value.items())
      for (const char* own : {"messages", "tools", "add_generation_prompt", "continue_final_message"})
        if (member.key() == own) fail_field(field + "." + own, "is a field of the request itself");
    prompt->template_arguments = members_of_both(prompt->template_arguments, value);
  });
  fields.custom("reasoning_effort",
                [prompt](const Json& value, const std::string& field) { prompt->template_arguments["reasoning_effort"] = json_text(value, field); });
  fields.custom("prompt_token_ids", [prompt](const Json& value, const std::string& field) {
    prompt->ids = json_token_ids(value, field);
    if (prompt->ids->empty()) fail_field(field, "is empty, allowed is an array of token ids");
  });
}

void check_chat_prompt(const ChatPrompt& prompt) {
  if (prompt.ids && !prompt.messages.empty()) fail_field("prompt_token_ids", "is given beside messages, allowed is one of them");
  if (!prompt.ids && prompt.messages.empty()) fail_field(prompt.messages_field, "is missing or empty");
  if (!prompt.continue_final_message) return;
  if (prompt.add_generation_prompt.value_or(false)) fail_field("add_generation_prompt", "is true beside continue_final_message, allowed is one of them");
  if (prompt.ids) fail_field("continue_final_message", "is given with prompt_token_ids, which are continued as they are");
  if (prompt.messages.back()["role"] != "assistant")
    fail_field(fmt::format("messages[{}].role", prompt.messages.size() - 1),
               fmt::format("is {}, allowed with continue_final_message is assistant", prompt.messages.back()["role"].get<std::string>()));
}

ChatRequest decode_chat(std::string_view body, SamplingFields defaults) {
  ChatRequest r;
  r.sampling = std::move(defaults);
  std::optional<std::int64_t> newer;
  JsonFields fields;
  add_sampling_fields(fields, &r.sampling);
  add_hold_fields(fields, &r.sampling);
  add_chat_prompt_fields(fields, &r.prompt);
  fields.integer("max_completion_tokens", &newer, 0, kMostId);
  fields.boolean("logprobs", &r.logprobs);
  fields.integer("top_logprobs", &r.top_logprobs, 0, SamplingParameters::kMaxTopLogprobs);
  fields.custom("tool_choice", [&](const Json& value, const std::string& field) { r.tool_choice = tool_choice_value(value, field); });
  fields.boolean("parallel_tool_calls", &r.parallel_tool_calls);
  add_no_op_fields(fields);
  fields.only("add_special_tokens", {false});  // the template writes them
  fields.only("verbosity", {"medium"});        // OpenAI's default; other values would have no effect here
  fields.only("modalities", {Json::array({"text"})});
  for (const char* name : {"audio", "web_search_options", "functions", "function_call", "moderation"}) fields.only(name, {});

  fields.read(parse_object(body));
  if (newer) {
    if (r.sampling.max_tokens && r.sampling.max_tokens != newer)
      fail_field("max_tokens", fmt::format("is {} and max_completion_tokens is {}, allowed is one of them", *r.sampling.max_tokens, *newer));
    r.sampling.max_tokens = newer;
    r.sampling.max_tokens_field = "max_completion_tokens";
  }
  check_sampling_fields(r.sampling, 1);
  check_hold_fields(r.sampling, 1);
  check_chat_prompt(r.prompt);
  check_tool_choice(r);
  if (r.top_logprobs > 0 && !r.logprobs) fail_field("top_logprobs", fmt::format("is {} without \"logprobs\": true", r.top_logprobs));
  return r;
}

}  // namespace lockstep
