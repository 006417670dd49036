#include "text/grammar/call_grammar.h"

#include <algorithm>
#include <optional>

#include "base/ascii.h"
#include "base/error.h"

namespace lockstep {

using nlohmann::ordered_json;

namespace {
constexpr std::int64_t kMostCalls = 16;

// Markup with its special tokens as tokens: <...> as a whole, or inside it a word between marks such as ｜DSML｜.
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
  static const CallMarkup markup{
      .begin = "[", .between = ", ", .end = "]", .before_name = "{\"name\": \"", .before_arguments = "\", \"arguments\": ", .behind = "}"};
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

namespace {
// All special tokens except those whose text is one of `but`.
std::vector<std::int32_t> special_tokens(const Tokenizer& tokenizer, const std::vector<std::string>& but) {
  std::vector<std::int32_t> ids;
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    if (tokenizer.is_special(id) && std::find(but.begin(), but.end(), tokenizer.token_text(id)) == but.end()) ids.push_back(id);
  return ids;
}

// Llama: a message that begins with { is calls, any other is text.
GrammarPart calls_or_text(const CallMarkup& markup, const ordered_json& tools, const Tokenizer& tokenizer, bool several) {
  const GrammarPart space = GrammarPart::repeat(GrammarPart::alternatives({GrammarPart::literal(" "), GrammarPart::literal("\n")}), 0, 4);
  const GrammarPart tag = GrammarPart::repeat(markup_part(tokenizer, kPythonTag), 0, 1);
  // After reasoning inside the text a message would begin again, without the grammar's constraint.
  const std::vector<std::string> never = {std::string(kPythonTag), "<think>"};
  return GrammarPart::alternatives({GrammarPart::sequence({space, tag, space, calls_grammar(markup, tools, tokenizer, several)}),
                                    GrammarPart::text_unless("{", never, special_tokens(tokenizer, never))});
}
}  // namespace

GrammarPart text_with_calls(MessageFormat format, const CallMarkup& markup, const ordered_json& tools, const Tokenizer& tokenizer, bool several) {
  if (format == MessageFormat::llama) return calls_or_text(markup, tools, tokenizer, several);
  CallMarkup rest = markup;
  std::string mark;
  std::vector<std::string> never;
  for (const CallBlock& block : tool_call_format(format).blocks) {
    std::string& first = markup.begin.empty() ? rest.before_name : rest.begin;
    if (mark.empty() && first.starts_with(block.begin)) {
      mark = block.begin;
      first.erase(0, mark.size());
    } else {
      never.emplace_back(block.begin);  // the family's other call format, which the grammar does not constrain
    }
  }
  if (mark.empty()) fail(ErrorCode::unsupported, "calls of this model begin with no mark of their own");
  const std::optional<std::int32_t> id = tokenizer.token_id(mark);
  std::vector<std::string> not_free = never;
  not_free.push_back(mark);
  // Where each call has a mark of its own, the next one is found by it.
  GrammarPart calls = calls_grammar(rest, tools, tokenizer, several && !markup.begin.empty());
  return GrammarPart::text_with(std::move(mark), id && tokenizer.is_special(*id) ? *id : -1, std::move(calls), std::move(never),
                                special_tokens(tokenizer, not_free));
}

}  // namespace lockstep
