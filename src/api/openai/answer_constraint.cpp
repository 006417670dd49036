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
  Json offered = Json::array();
  std::vector<GrammarPart> calls;
  for (const Json& tool : tools) {
    const std::string name = tool["function"]["name"];
    if (choice.kind == ToolChoice::Kind::named && name != choice.name) continue;
    calls.push_back(GrammarPart::sequence({GrammarPart::literal("{\"name\": " + Json(name).dump() + ", \"arguments\": "), arguments_part(tool), GrammarPart::literal("}")}));
    offered.push_back(tool);
  }
  try {
    if (choice.kind == ToolChoice::Kind::named)
      return constraint_of(service, service->grammars().of_part(arguments_part(offered[0]), kGrammarOptions), after_reasoning);
    const GrammarPart call = GrammarPart::alternatives(std::move(calls));
    std::vector<GrammarPart> list = {GrammarPart::literal("["), call};
    if (parallel) list.push_back(GrammarPart::repeat(GrammarPart::sequence({GrammarPart::literal(", "), call}), 0, kMostParallelCalls - 1));
    list.push_back(GrammarPart::literal("]"));
    return constraint_of(service, service->grammars().of_part(GrammarPart::sequence(std::move(list)), kGrammarOptions), after_reasoning);
  } catch (const RequestError&) {
    throw;
  } catch (const Error& e) {
    refuse_tools(*service, tools, e);
  }
}

}  // namespace lockstep
