#include "api/openai/answer_constraint.h"

#include "service/token_constraints.h"

namespace lockstep {
namespace {
constexpr std::int64_t kMostParallelCalls = 16;
// A model writes what it was told of: properties that a schema does not name are not offered to it.
constexpr GrammarOptions kGrammarOptions = {.closed_objects = true};

MakeConstraint constraint_of(const std::shared_ptr<GenerationService>& service, std::shared_ptr<const TokenGrammar> grammar, bool after_reasoning) {
  return [service, grammar = std::move(grammar), after_reasoning]() -> std::shared_ptr<TokenConstraint> {
    std::shared_ptr<TokenConstraint> constraint = make_constraint(grammar);
    if (!after_reasoning) return constraint;
    return std::make_shared<AfterReasoning>(std::move(constraint), service->tokenizer(), "</think>", service->end_tokens(), service->limits().vocabulary);
  };
}

// Arguments are an object, whether their schema says so or not.
GrammarPart arguments_part(const Json& tool) {
  const Json& function = tool["function"];
  Json schema = function.contains("parameters") && !function["parameters"].empty() ? function["parameters"] : Json::object();
  if (schema.empty()) return GrammarPart::json_object();
  if (!schema.contains("type")) schema["type"] = "object";
  return GrammarPart::schema(std::move(schema));
}

[[noreturn]] void refuse(const Error& e, const std::string& field) {
  throw RequestError(e.code() == ErrorCode::resource_exhausted ? ErrorCode::invalid_argument : e.code(), field, fmt::format("{}: {}", field, e.what()));
}

// One tool after the other, to name the one at fault.
[[noreturn]] void refuse_tools(GenerationService& service, const Json& tools, const Error& whole) {
  for (std::size_t i = 0; i < tools.size(); ++i) {
    try {
      service.grammars().of_part(arguments_part(tools[i]), kGrammarOptions);
    } catch (const Error& e) {
      refuse(e, fmt::format("tools[{}].function.parameters", i));
    }
  }
  refuse(whole, "tools");
}

// A text of the model's markup: what the tokenizer holds for special must be that token.
GrammarPart markup_part(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<GrammarPart> parts;
  std::size_t plain = 0;
  for (std::size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at + 1)) {
    const std::size_t end = text.find('>', at);
    if (end == std::string::npos) break;
    const auto id = tokenizer.token_id(std::string_view(text).substr(at, end + 1 - at));
    if (!id || !tokenizer.is_special(*id)) continue;
    if (at > plain) parts.push_back(GrammarPart::literal(text.substr(plain, at - plain)));
    parts.push_back(GrammarPart::token(*id));
    plain = end + 1;
  }
  if (plain < text.size() || parts.empty()) parts.push_back(GrammarPart::literal(text.substr(plain)));
  return parts.size() == 1 ? parts[0] : GrammarPart::sequence(std::move(parts));
}

GrammarPart forced_calls(const Tokenizer& tokenizer, const JsonCallMarkup& markup, const Json& tools, bool several, bool after_reasoning) {
  const auto part = [&](const std::string& text) { return markup_part(tokenizer, text); };
  std::vector<GrammarPart> calls;
  for (const Json& tool : tools)
    calls.push_back(GrammarPart::sequence({part(markup.before_name + tool["function"]["name"].get<std::string>() + markup.before_arguments), arguments_part(tool), part(markup.behind)}));
  const GrammarPart call = GrammarPart::alternatives(std::move(calls));
  std::vector<GrammarPart> all;
  if (after_reasoning) all.push_back(GrammarPart::repeat(GrammarPart::literal("\n"), 0, 2));  // as models are used to
  if (!markup.begin.empty()) all.push_back(part(markup.begin));
  all.push_back(call);
  if (several) {
    std::vector<GrammarPart> next;
    if (!markup.between.empty()) next.push_back(part(markup.between));
    next.push_back(call);
    all.push_back(GrammarPart::repeat(GrammarPart::sequence(std::move(next)), 0, kMostParallelCalls - 1));
  }
  if (!markup.end.empty()) all.push_back(part(markup.end));
  return GrammarPart::sequence(std::move(all));
}
}  // namespace

MakeConstraint format_constraint(const std::shared_ptr<GenerationService>& service, const ResponseFormat& format, bool after_reasoning) {
  if (format.kind == ResponseFormat::Kind::text) return {};
  const bool any = format.kind == ResponseFormat::Kind::json_object;
  try {
    Grammars& grammars = service->grammars();
    return constraint_of(service, any ? grammars.json_object() : grammars.of_schema(format.schema, kGrammarOptions), after_reasoning);
  } catch (const Error& e) {
    refuse(e, any ? "response_format" : format.field);
  }
}

MakeConstraint forced_call_constraint(const std::shared_ptr<GenerationService>& service, const Json& tools, const ToolChoice& choice, bool parallel,
                                      bool after_reasoning) {
  const bool named = choice.kind == ToolChoice::Kind::named;
  Json offered = Json::array();
  for (const Json& tool : tools)
    if (!named || tool["function"]["name"] == choice.name) offered.push_back(tool);
  // The plain JSON is the list of a family that has no markup of its own.
  static const JsonCallMarkup kPlain{"[", ", ", "]", "{\"name\": \"", "\", \"arguments\": ", "}"};
  const JsonCallMarkup& markup = service->call_markup();
  try {
    if (named && markup.empty()) return constraint_of(service, service->grammars().of_part(arguments_part(offered[0]), kGrammarOptions), after_reasoning);
    const bool own = !markup.empty();
    const GrammarPart calls = forced_calls(service->tokenizer(), own ? markup : kPlain, offered, parallel && !named, own && after_reasoning);
    return constraint_of(service, service->grammars().of_part(calls, kGrammarOptions), after_reasoning);
  } catch (const RequestError&) {
    throw;
  } catch (const Error& e) {
    refuse_tools(*service, tools, e);
  }
}

}  // namespace lockstep
