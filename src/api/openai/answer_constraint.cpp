#include "api/openai/answer_constraint.h"

#include <algorithm>
#include <optional>

#include "serving/token_constraints.h"

namespace lockstep {
namespace {
// Properties that a schema does not name are not allowed, even where JSON Schema would allow any.
constexpr GrammarOptions kGrammarOptions = {.closed_objects = true};

MakeConstraint constraint_of(const std::shared_ptr<GenerationService>& service, std::shared_ptr<const TokenGrammar> grammar, bool after_reasoning) {
  return [service, grammar = std::move(grammar), after_reasoning]() -> std::shared_ptr<TokenConstraint> {
    std::shared_ptr<TokenConstraint> constraint = make_constraint(grammar);
    if (!after_reasoning) return constraint;
    return std::make_shared<AfterReasoning>(std::move(constraint), service->model().tokenizer(), "</think>", service->model().end_tokens(),
                                            service->limits().vocabulary);
  };
}

[[noreturn]] void refuse(const Error& e, const std::string& field) {
  if (const auto* own = dynamic_cast<const RequestError*>(&e)) throw RequestError(*own);  // of the request's memory, not of the schema
  throw RequestError(e.code() == ErrorCode::resource_exhausted ? ErrorCode::invalid_argument : e.code(), field, fmt::format("{}: {}", field, e.what()));
}

// Compiles the tools one by one, to name the one at fault.
[[noreturn]] void refuse_tools(GenerationService& service, const Json& tools, const Error& whole) {
  for (std::size_t i = 0; i < tools.size(); ++i) {
    try {
      service.model().grammars().of_part(GrammarPart::schema(arguments_schema(tools[i])), kGrammarOptions);
    } catch (const Error& e) {
      refuse(e, fmt::format("tools[{}].function.parameters", i));
    }
  }
  refuse(whole, "tools");
}

GrammarPart schema_part(const ResponseFormat& format) {
  return format.kind == ResponseFormat::Kind::json_object ? GrammarPart::json_object() : GrammarPart::schema(format.schema);
}

// `part` after any line feeds, which models write behind their reasoning.
GrammarPart behind_reasoning(GrammarPart part) { return GrammarPart::sequence({GrammarPart::repeat(GrammarPart::literal("\n"), 0, 2), std::move(part)}); }

char first_byte(const CallMarkup& markup) { return (markup.begin + markup.before_name).front(); }
}  // namespace

MakeConstraint format_constraint(const std::shared_ptr<GenerationService>& service, const ResponseFormat& format, bool after_reasoning) {
  if (format.kind == ResponseFormat::Kind::text) return {};
  const bool any = format.kind == ResponseFormat::Kind::json_object;
  try {
    Grammars& grammars = service->model().grammars();
    return constraint_of(service, any ? grammars.json_object() : grammars.of_schema(format.schema, kGrammarOptions), after_reasoning);
  } catch (const Error& e) {
    refuse(e, any ? "response_format" : format.field);
  }
}

void hold_stops_to_grammar(const GenerationService& service, SamplingFields& sampling, const std::string& what) {
  sampling.stop.clear();
  const std::vector<std::int32_t>& ends = service.model().end_tokens();
  for (std::size_t i = 0; i < sampling.stop_token_ids.size(); ++i) {
    const std::int32_t id = sampling.stop_token_ids[i];
    if (id < service.limits().vocabulary && !service.model().tokenizer().is_special(id) && std::find(ends.begin(), ends.end(), id) == ends.end())
      fail_field(fmt::format("stop_token_ids[{}]", i),
                 fmt::format("is {}, a token of text, beside {}, which holds the answer to JSON, and would cut it short; allowed is one of the two", id, what));
  }
}

CallConstraint forced_call_constraint(const std::shared_ptr<GenerationService>& service, const Json& tools, const ToolChoice& choice, bool parallel,
                                      bool after_reasoning) {
  const bool named = choice.kind == ToolChoice::Kind::named;
  Json offered = Json::array();
  for (const Json& tool : tools)
    if (!named || tool["function"]["name"] == choice.name) offered.push_back(tool);
  Grammars& grammars = service->model().grammars();
  const auto calls = [&](const CallMarkup& markup) { return calls_grammar(markup, offered, service->model().tokenizer(), parallel && !named); };
  if (!service->model().call_markup().empty()) {
    try {
      GrammarPart part = calls(service->model().call_markup());
      if (after_reasoning) part = behind_reasoning(std::move(part));
      return {constraint_of(service, grammars.of_part(part, kGrammarOptions), after_reasoning), true};
    } catch (const Error&) {
      // Tags cannot express every schema; JSON can, or its error says what is wrong with the schema.
    }
  }
  try {
    const GrammarPart part = named ? GrammarPart::schema(arguments_schema(offered[0])) : calls(plain_call_markup());
    return {constraint_of(service, grammars.of_part(part, kGrammarOptions), after_reasoning), false};
  } catch (const Error& e) {
    refuse_tools(*service, tools, e);
  }
}

bool has_strict_tool(const Json& tools) {
  return std::any_of(tools.begin(), tools.end(), [](const Json& tool) { return tool["function"].value("strict", Json()) == true; });
}

CallConstraint strict_call_constraint(const std::shared_ptr<GenerationService>& service, const Json& tools, bool parallel, bool after_reasoning) {
  std::optional<GrammarPart> part;
  try {
    part = text_with_calls(service->model().message_format(), service->model().call_markup(), tools, service->model().tokenizer(), parallel);
  } catch (const Error& e) {
    std::size_t strict = 0;
    while (tools[strict]["function"].value("strict", Json()) != true) ++strict;
    const std::string field = fmt::format("tools[{}].function.strict", strict);
    throw RequestError(
        ErrorCode::unsupported, field,
        fmt::format(
            "{} is true, and {}, so calls that it makes by itself are not held to a schema; allowed is strict with tool_choice required, or with a named tool",
            field, e.what()),
        400);
  }
  try {
    return {constraint_of(service, service->model().grammars().of_part(*part, kGrammarOptions), after_reasoning), true};
  } catch (const Error& e) {
    refuse_tools(*service, tools, e);
  }
}

CallConstraint call_or_answer_constraint(const std::shared_ptr<GenerationService>& service, const Json& tools, const ResponseFormat& format, bool parallel,
                                         bool after_reasoning) {
  Grammars& grammars = service->model().grammars();
  std::shared_ptr<const TokenGrammar> answer;
  try {
    answer = grammars.of_part(schema_part(format), kGrammarOptions);
  } catch (const Error& e) {
    refuse(e, format.kind == ResponseFormat::Kind::json_object ? "response_format" : format.field);
  }
  // The answer's first character tells calls from content.
  const auto begins_otherwise = [&](const CallMarkup& markup) {
    const char first = first_byte(markup);
    return !GrammarMatcher(answer).accept_bytes({&first, 1});
  };
  std::optional<Error> fault;
  for (const CallMarkup* markup : {&service->model().call_markup(), &plain_call_markup()}) {
    if (markup->empty() || !begins_otherwise(*markup)) continue;
    try {
      GrammarPart part = GrammarPart::alternatives({calls_grammar(*markup, tools, service->model().tokenizer(), parallel), schema_part(format)});
      if (after_reasoning) part = behind_reasoning(std::move(part));
      return {constraint_of(service, grammars.of_part(part, kGrammarOptions), after_reasoning), markup != &plain_call_markup(), first_byte(*markup)};
    } catch (const Error& e) {
      fault = e;
    }
  }
  if (fault) refuse_tools(*service, tools, *fault);
  throw RequestError(
      ErrorCode::unsupported, "response_format",
      "response_format allows a list, and this model's calls are written as one, so the two cannot be told apart; allowed beside tools is a schema of objects",
      400);
}

}  // namespace lockstep
