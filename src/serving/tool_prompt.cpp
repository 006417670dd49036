#include "serving/tool_prompt.h"

#include "base/choice.h"
#include "base/error.h"

namespace lockstep {
namespace {
using Json = nlohmann::ordered_json;

std::string line_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string call_text(const CallMarkup& markup, const std::string& name, const std::string& arguments) {
  return markup.before_name + name + markup.before_arguments + arguments + markup.behind;
}

std::string system_text(const Json& tools, const CallMarkup& markup) {
  std::string text = "You can call these functions, one a line:\n";
  for (const Json& tool : tools) text += line_of(tool.contains("function") ? tool["function"] : tool) + "\n";
  return text + "To call one, answer with nothing but\n" + markup.begin + call_text(markup, "NAME", "{ARGUMENTS}") + markup.end +
         "\nand you are then told the result. If no call is needed, answer in words.";
}
}  // namespace

bool shows_tools(const ChatTemplate& chat) {
  const Json tools = Json::array(
      {{{"type", "function"}, {"function", {{"name", "f"}, {"description", "d"}, {"parameters", {{"type", "object"}, {"properties", Json::object()}}}}}}});
  const Json user{{"role", "user"}, {"content", "x"}}, system{{"role", "system"}, {"content", "y"}};
  bool rendered = false;
  for (const Json& messages : {Json::array({user}), Json::array({system, user})}) {
    try {
      if (chat.render({.messages = messages, .tools = tools}) != chat.render({.messages = messages})) return true;
      rendered = true;
    } catch (const Error&) {  // it refuses such a talk
    }
  }
  return !rendered;  // one that cannot be asked is given the benefit of the doubt
}

std::vector<std::string> tool_format_names() { return {"llama", "nemotron", "qwen"}; }

MessageFormat tool_format_by_name(const std::string& name) {
  check_choice("tool-format", name.substr(0, 60), tool_format_names());
  return message_format_by_name(name);
}

ChatTemplateInput with_tools_told(ChatTemplateInput input, const CallMarkup& markup) {
  Json messages = Json::array();
  for (Json& message : input.messages) {
    const std::string role = message.value("role", "");
    if (role == "tool") {
      const std::string text =
          "Result of the call: " +
          (message.contains("content") && message["content"].is_string() ? message["content"].get<std::string>() : line_of(message.value("content", Json())));
      // Results of calls that were made at once are one message: many templates want user and assistant in turn.
      if (!messages.empty() && messages.back().value("role", "") == "user" && messages.back().contains("told"))
        messages.back()["content"] = messages.back()["content"].get<std::string>() + "\n" + text;
      else messages.push_back({{"role", "user"}, {"content", text}, {"told", true}});
      continue;
    }
    if (message.contains("tool_calls") && message["tool_calls"].is_array() && !message["tool_calls"].empty()) {
      std::string text = message.contains("content") && message["content"].is_string() ? message["content"].get<std::string>() : std::string();
      if (!text.empty()) text += "\n";
      text += markup.begin;
      bool first = true;
      for (const Json& call : message["tool_calls"]) {
        const Json& function = call.contains("function") ? call["function"] : call;
        const Json arguments = function.value("arguments", Json::object());
        text += (first ? "" : markup.between) +
                call_text(markup, function.value("name", ""), arguments.is_string() ? arguments.get<std::string>() : line_of(arguments));
        first = false;
      }
      message["content"] = text + markup.end;
      message.erase("tool_calls");
    }
    messages.push_back(std::move(message));
  }
  for (Json& message : messages) message.erase("told");
  if (input.tools.is_array() && !input.tools.empty()) {
    const std::string text = system_text(input.tools, markup);
    if (messages.empty() || messages[0].value("role", "") != "system") messages.insert(messages.begin(), Json{{"role", "system"}, {"content", text}});
    else if (messages[0].contains("content") && messages[0]["content"].is_string())
      messages[0]["content"] = messages[0]["content"].get<std::string>() + "\n\n" + text;
    else messages[0]["content"] = text;
  }
  input.messages = std::move(messages);
  input.tools = nullptr;
  return input;
}

}  // namespace lockstep
