#include "serving/tool_prompt.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "text/message/message_parser.h"

namespace lockstep {
namespace {
using Json = nlohmann::ordered_json;

constexpr const char* kPlain = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: ";
const Json kTools = Json::parse(
    R"([{"type":"function","function":{"name":"add","description":"Adds.","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}}])");

TEST(ToolPrompt, ATemplateShowsToolsOrDoesNot) {
  EXPECT_FALSE(shows_tools(ChatTemplate::from_source(kPlain)));
  EXPECT_TRUE(shows_tools(ChatTemplate::from_source(std::string("{% for t in tools or [] %}{{ t.function.name }}{% endfor %}") + kPlain)));
  EXPECT_TRUE(shows_tools(ChatTemplate::from_source("{% if messages[0].role == 'system' %}{{ tools | tojson }}{% endif %}x")));
  EXPECT_TRUE(shows_tools(ChatTemplate::from_source("{{ raise_exception('never') }}")));  // nobody knows
}

TEST(ToolPrompt, ToolsCallsAndResultsAreText) {
  const CallMarkup markup = call_markup(tool_format_by_name("qwen"), {});
  ChatTemplateInput input;
  input.messages = Json::parse(R"([{"role":"system","content":"Be brief."},{"role":"user","content":"3+4?"},
    {"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"add","arguments":{"a":3}}},
      {"id":"2","type":"function","function":{"name":"add","arguments":{"a":4}}}]},
    {"role":"tool","tool_call_id":"1","content":"3"},{"role":"tool","tool_call_id":"2","content":"7"}])");
  input.tools = kTools;
  const std::string text = ChatTemplate::from_source(kPlain).render(with_tools_told(input, markup));
  EXPECT_EQ(text,
            "system: Be brief.\n\nYou can call these functions, one a line:\n"
            R"({"name":"add","description":"Adds.","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}})"
            "\nTo call one, answer with nothing but\n<tool_call>\n{\"name\": \"NAME\", \"arguments\": {ARGUMENTS}}\n</tool_call>\nand you are then told the "
            "result. If no call is needed, answer in words.\n"
            "user: 3+4?\nassistant: <tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\":3}}\n</tool_call>\n<tool_call>\n{\"name\": \"add\", \"arguments\": "
            "{\"a\":4}}\n</tool_call>\n"
            "user: Result of the call: 3\nResult of the call: 7\nassistant: ");
  // Nothing changes where there is nothing to tell.
  input.messages = Json::parse(R"([{"role":"user","content":"hi"}])");
  input.tools = nullptr;
  EXPECT_EQ(with_tools_told(input, markup).messages, input.messages);
}

// What the model was shown is what is read back.
TEST(ToolPrompt, WhatIsToldIsWhatIsRead) {
  for (const std::string& name : tool_format_names()) {
    const MessageFormat format = tool_format_by_name(name);
    const CallMarkup markup = call_markup(format, {});
    ASSERT_FALSE(markup.empty() || markup.tags()) << name;
    MessageParser parser(format, kTools, false);
    MessageDelta delta = parser.push(markup.begin + markup.before_name + "add" + markup.before_arguments + "{\"a\": 1}" + markup.behind + markup.end),
                 last = parser.flush();
    std::string called, content = delta.content + last.content;
    for (const ToolCallDelta& call : delta.tool_calls) called += call.name;
    for (const ToolCallDelta& call : last.tool_calls) called += call.name;
    EXPECT_EQ(called, "add") << name;
    EXPECT_EQ(content, "") << name;
  }
  EXPECT_THROW(tool_format_by_name("qwem"), Error);
}

}  // namespace
}  // namespace lockstep
