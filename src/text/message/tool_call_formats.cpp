#include "text/message/tool_call_formats.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {
namespace {
constexpr TagWords kGlm{
    .parameter = "<arg_key>", .parameter_close = "</arg_key>", .parameter_end = "</arg_value>", .block_end = "</tool_call>", .value = "<arg_value>"};
constexpr TagWords kQwenTags{.function = "<function=",
                             .function_close = ">",
                             .function_end = "</function>",
                             .parameter = "<parameter=",
                             .parameter_close = ">",
                             .parameter_end = "</parameter>",
                             .block_end = "</tool_call>",
                             .newline_around = true};
constexpr TagWords kMinimax{.function = "<invoke name=\"",
                            .function_close = "\">",
                            .function_end = "</invoke>",
                            .parameter = "<parameter name=\"",
                            .parameter_close = "\">",
                            .parameter_end = "</parameter>",
                            .block_end = "</minimax:tool_call>"};
constexpr TagWords kDsml{.function = "<｜DSML｜invoke name=\"",
                         .function_close = "\">",
                         .function_end = "</｜DSML｜invoke>",
                         .parameter = "<｜DSML｜parameter name=\"",
                         .parameter_close = "\"",
                         .parameter_end = "</｜DSML｜parameter>",
                         .block_end = "</｜DSML｜function_calls>",
                         .string_flag = true};
constexpr MarkedWords kDeepseek{
    .begin = "<｜tool▁call▁begin｜>", .separator = "<｜tool▁sep｜>", .end = "<｜tool▁call▁end｜>", .block_end = "<｜tool▁calls▁end｜>", .fence = true};
constexpr MarkedWords kKimi{.begin = "<|tool_call_begin|>",
                            .separator = "<|tool_call_argument_begin|>",
                            .end = "<|tool_call_end|>",
                            .block_end = "<|tool_calls_section_end|>",
                            .id_title = true};

// JSON or tags, as the first character says.
class QwenReader : public CallReader {
 public:
  explicit QwenReader(const ArgumentTypes& types) : types_(types) {}
  CallStep step(std::string_view text, bool ended) override {
    if (reader_) return reader_->step(text, ended);
    if (const std::size_t space = count_space(text); space > 0) return {CallStep::Kind::skipped, space};
    if (text.empty()) return {CallStep::Kind::more};
    reader_ = text[0] == '{' ? make_json_block_reader("</tool_call>", false) : make_tag_reader(kQwenTags, types_);
    return {CallStep::Kind::skipped};
  }

 private:
  const ArgumentTypes& types_;
  std::unique_ptr<CallReader> reader_;
};

const std::vector<ToolCallFormat>& formats() {
  static const CallBlock glm = {"<tool_call>", [](const ArgumentTypes& types) { return make_tag_reader(kGlm, types); }};
  static const CallBlock qwen = {"<tool_call>", [](const ArgumentTypes& types) -> std::unique_ptr<CallReader> { return std::make_unique<QwenReader>(types); }};
  static const CallBlock kimi = {"<|tool_calls_section_begin|>", [](const ArgumentTypes&) { return make_marked_reader(kKimi); }};
  static const CallBlock minimax = {"<minimax:tool_call>", [](const ArgumentTypes& types) { return make_tag_reader(kMinimax, types); }};
  static const CallBlock deepseek = {"<｜tool▁calls▁begin｜>", [](const ArgumentTypes&) { return make_marked_reader(kDeepseek); }};
  static const CallBlock dsml = {"<｜DSML｜function_calls>", [](const ArgumentTypes& types) { return make_tag_reader(kDsml, types); }};
  static const CallBlock nemotron = {"<TOOLCALL>", [](const ArgumentTypes&) { return make_json_block_reader("</TOOLCALL>", true); }};
  // In the order in which a template's signs are looked for: the special before the common.
  static const std::vector<ToolCallFormat> rows = {
      {MessageFormat::kimi, "kimi", {kimi}, {"<|tool_calls_section_begin|>"}},
      {MessageFormat::minimax, "minimax", {minimax}, {"<minimax:tool_call>"}},
      {MessageFormat::deepseek, "deepseek", {deepseek, dsml}, {"tool▁calls▁begin", "｜DSML｜"}},
      {MessageFormat::nemotron, "nemotron", {nemotron, qwen}, {"<TOOLCALL>"}},
      {MessageFormat::glm, "glm", {glm}, {"<arg_key>"}},
      {MessageFormat::qwen, "qwen", {qwen}, {"<tool_call>"}},
      {MessageFormat::llama, "llama", {}, {"<|python_tag|>", "\"parameters\": dictionary of argument"}},
      {MessageFormat::plain, "plain", {}, {}},
  };
  return rows;
}
}  // namespace

const ToolCallFormat& tool_call_format(MessageFormat format) {
  return *std::find_if(formats().begin(), formats().end(), [&](const ToolCallFormat& row) { return row.format == format; });
}

std::vector<std::string> message_format_names() {
  std::vector<std::string> names;
  for (const ToolCallFormat& row : formats()) names.emplace_back(row.name);
  std::sort(names.begin(), names.end());
  return names;
}

MessageFormat message_format_by_name(std::string_view name) {
  for (const ToolCallFormat& row : formats())
    if (row.name == name) return row.format;
  fail(ErrorCode::invalid_argument, "the message format is '{}', allowed is {}{}", name.substr(0, 60), fmt::join(message_format_names(), ", "),
       did_you_mean(name, message_format_names()));
}

MessageFormat detect_message_format(std::string_view source) {
  for (const ToolCallFormat& row : formats())
    for (const std::string_view sign : row.signs)
      if (source.find(sign) != std::string_view::npos) return row.format;
  return MessageFormat::plain;
}

CallMarkup call_markup(MessageFormat format, std::string_view source) {
  const auto has = [&](std::string_view sign) { return source.find(sign) != std::string_view::npos; };
  const auto json = [](std::string begin, std::string between, std::string end, std::string name, std::string arguments, std::string behind) {
    return CallMarkup{.begin = std::move(begin),
                      .between = std::move(between),
                      .end = std::move(end),
                      .before_name = std::move(name),
                      .before_arguments = std::move(arguments),
                      .behind = std::move(behind)};
  };
  const std::string name = "{\"name\": \"", arguments = "\", \"arguments\": ";
  // A model whose prompt describes tags writes tags.
  if ((format == MessageFormat::qwen || format == MessageFormat::nemotron) && has("<function="))
    return {.between = "\n",
            .before_name = "<tool_call>\n<function=",
            .before_arguments = ">\n",
            .behind = "</function>\n</tool_call>",
            .before_key = "<parameter=",
            .before_text = ">\n",
            .before_value = ">\n",
            .behind_value = "\n</parameter>\n"};
  if (format == MessageFormat::qwen) return json("<tool_call>\n", "\n</tool_call>\n<tool_call>\n", "\n</tool_call>", name, arguments, "}");
  if (format == MessageFormat::nemotron) return json("<TOOLCALL>[", ", ", "]</TOOLCALL>", name, arguments, "}");
  if (format == MessageFormat::glm) {
    const std::string line = has("</arg_key><arg_value>") ? "" : "\n";  // GLM-4.7 writes no new lines
    return {.between = line,
            .before_name = "<tool_call>",
            .before_arguments = line,
            .behind = "</tool_call>",
            .before_key = "<arg_key>",
            .before_text = "</arg_key>" + line + "<arg_value>",
            .before_value = "</arg_key>" + line + "<arg_value>",
            .behind_value = "</arg_value>" + line};
  }
  if (format == MessageFormat::minimax)
    return {.begin = "<minimax:tool_call>\n",
            .end = "</minimax:tool_call>",
            .before_name = "<invoke name=\"",
            .before_arguments = "\">",
            .behind = "\n</invoke>\n",
            .before_key = "\n<parameter name=\"",
            .before_text = "\">",
            .before_value = "\">",
            .behind_value = "</parameter>"};
  if (format == MessageFormat::kimi)
    return {.begin = "<|tool_calls_section_begin|>",
            .end = "<|tool_calls_section_end|>",
            .before_name = "<|tool_call_begin|>functions.",
            .before_arguments = "<|tool_call_argument_begin|>",
            .behind = "<|tool_call_end|>",
            .numbered = true};
  // V3 and R1 write a code fence, V3.1 does not.
  if (format == MessageFormat::deepseek && has("tool▁calls▁begin")) {
    const std::string call = "<｜tool▁call▁begin｜>", separator = "<｜tool▁sep｜>", end = "<｜tool▁call▁end｜>", begin = "<｜tool▁calls▁begin｜>",
                      last = "<｜tool▁calls▁end｜>";
    if (has("```json")) return json(begin, "\n", last, call + "function" + separator, "\n```json\n", "\n```" + end);
    return json(begin, "", last, call, separator, end);
  }
  if (format == MessageFormat::deepseek)
    return {.begin = "<｜DSML｜function_calls>\n",
            .end = "</｜DSML｜function_calls>",
            .before_name = "<｜DSML｜invoke name=\"",
            .before_arguments = "\">\n",
            .behind = "</｜DSML｜invoke>\n",
            .before_key = "<｜DSML｜parameter name=\"",
            .before_text = "\" string=\"true\">",
            .before_value = "\" string=\"false\">",
            .behind_value = "</｜DSML｜parameter>\n"};
  if (format == MessageFormat::llama) return json("", "; ", "", name, "\", \"parameters\": ", "}");
  return {};
}

}  // namespace lockstep
