#include "text/grammar/call_grammar.h"

#include <algorithm>

#include "base/ascii.h"
#include "base/error.h"

namespace lockstep {

using nlohmann::ordered_json;

namespace {
constexpr std::int64_t kMostCalls = 16;

// What the tokenizer holds for special is that token: <...>, or within it a word between marks such as ｜DSML｜.
GrammarPart markup_part(const Tokenizer& tokenizer, std::string_view text) {
  constexpr std::string_view kBar = "｜";
  std::vector<GrammarPart> parts;
  std::string plain;
  const auto end_plain = [&] {
    if (!plain.empty()) parts.push_back(GrammarPart::literal(std::exchange(plain, {})));
  };
  while (!text.empty()) {
    std::size_t used = 0;
    for (const auto& [open, close] : {std::pair<std::string_view, std::string_view>{"<", ">"}, {kBar, kBar}}) {
      if (!text.starts_with(open)) continue;
      const std::size_t end = text.find(close, open.size());
      if (end == std::string_view::npos) continue;
      const auto id = tokenizer.token_id(text.substr(0, end + close.size()));
      if (!id || !tokenizer.is_special(*id)) continue;
      end_plain();
      parts.push_back(GrammarPart::token(*id));
      used = end + close.size();
      break;
    }
    if (used == 0) plain += text[used++];
    text.remove_prefix(used);
  }
  end_plain();
  return parts.size() == 1 ? parts[0] : GrammarPart::sequence(std::move(parts));
}
}  // namespace

const CallMarkup& plain_call_markup() {
  static const CallMarkup markup{.begin = "[", .between = ", ", .end = "]", .before_name = "{\"name\": \"", .before_arguments = "\", \"arguments\": ", .behind = "}"};
  return markup;
}

ordered_json arguments_schema(const ordered_json& tool) {
  const ordered_json& function = tool["function"];
  ordered_json schema = function.contains("parameters") && !function["parameters"].empty() ? function["parameters"] : ordered_json::object();
  if (!schema.contains("type")) schema["type"] = "object";
  return schema;
}

GrammarPart calls_grammar(const CallMarkup& markup, const ordered_json& tools, const Tokenizer& tokenizer, bool several) {
  const auto part = [&](std::string_view text) { return markup_part(tokenizer, text); };
  const auto arguments = [&](const ordered_json& tool) {
    if (!markup.tags()) return GrammarPart::schema(arguments_schema(tool));
    return GrammarPart::tags(arguments_schema(tool), part(markup.before_key), part(markup.before_text), part(markup.before_value), part(markup.behind_value),
                             std::string(trimmed(markup.behind_value)), markup.before_text != markup.before_value);
  };
  std::vector<GrammarPart> calls;
  for (const ordered_json& tool : tools) {
    std::vector<GrammarPart> call{part(markup.before_name + tool["function"]["name"].get<std::string>())};
    if (markup.numbered) {
      call.push_back(GrammarPart::literal(":"));
      call.push_back(GrammarPart::schema({{"type", "integer"}, {"minimum", 0}, {"maximum", 9999}}));
    }
    call.push_back(part(markup.before_arguments));
    call.push_back(arguments(tool));
    call.push_back(part(markup.behind));
    calls.push_back(GrammarPart::sequence(std::move(call)));
  }
  const GrammarPart call = GrammarPart::alternatives(std::move(calls));
  std::vector<GrammarPart> all;
  if (!markup.begin.empty()) all.push_back(part(markup.begin));
  all.push_back(call);
  if (several) {
    std::vector<GrammarPart> next;
    if (!markup.between.empty()) next.push_back(part(markup.between));
    next.push_back(call);
    all.push_back(GrammarPart::repeat(GrammarPart::sequence(std::move(next)), 0, kMostCalls - 1));
  }
  if (!markup.end.empty()) all.push_back(part(markup.end));
  return GrammarPart::sequence(std::move(all));
}

GrammarPart text_with_calls(MessageFormat format, const CallMarkup& markup, const ordered_json& tools, const Tokenizer& tokenizer, bool several) {
  CallMarkup rest = markup;
  std::string mark;
  std::vector<std::string> never;
  for (const CallBlock& block : tool_call_format(format).blocks) {
    std::string& first = markup.begin.empty() ? rest.before_name : rest.begin;
    if (mark.empty() && first.starts_with(block.begin)) {
      mark = block.begin;
      first.erase(0, mark.size());
    } else {
      never.emplace_back(block.begin);  // the family's other way, which nothing holds
    }
  }
  if (mark.empty()) fail(ErrorCode::unsupported, "calls of this model begin with no mark of their own");
  std::vector<std::int32_t> others;
  std::int32_t mark_token = -1;
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.is_special(id)) continue;
    const std::string text = tokenizer.token_text(id);
    if (text == mark) mark_token = id;
    else if (std::find(never.begin(), never.end(), text) == never.end()) others.push_back(id);
  }
  // Where each call has a mark of its own, the next one is found by it.
  GrammarPart calls = calls_grammar(rest, tools, tokenizer, several && !markup.begin.empty());
  return GrammarPart::text_with(std::move(mark), mark_token, std::move(calls), std::move(never), std::move(others));
}

}  // namespace lockstep
