#include "api/openai/chat_answer.h"

#include <utility>

#include "api/openai/answer_constraint.h"
#include "api/openai/answer_run.h"
#include "api/openai/completion_answer.h"
#include "api/openai/forced_tool_parser.h"
#include "api/openai/keep_field.h"
#include "api/openai/native_parser.h"
#include "api/openai/service_tier.h"
#include "base/server_paths.h"
#include "serving/chat_prompt.h"

namespace lockstep {
namespace {
// Parses reasoning in the model's own format, and the rest of the text with `inner`.
class BehindReasoning : public AnswerParser {
 public:
  explicit BehindReasoning(std::unique_ptr<AnswerParser> inner)
      : reasoning_(MessageFormat::plain, std::make_shared<const ArgumentTypes>(Json::array()), true), inner_(std::move(inner)) {}
  void push(std::string_view text, ChoiceDelta& delta) override {
    ChoiceDelta parts;
    reasoning_.push(text, parts);
    take(std::move(parts), delta);
  }
  void flush(ChoiceDelta& delta) override {
    ChoiceDelta parts;
    reasoning_.flush(parts);
    take(std::move(parts), delta);
    inner_->flush(delta);
  }

 private:
  void take(ChoiceDelta&& parts, ChoiceDelta& delta) {
    const std::string text = std::exchange(parts.content, {});
    delta.append(std::move(parts));
    if (!text.empty()) inner_->push(text, delta);
  }
  NativeParser reasoning_;
  std::unique_ptr<AnswerParser> inner_;
};

// Parses an answer whose grammar makes calls begin with `first`, and content with any other character.
class CallsOrContent : public AnswerParser {
 public:
  CallsOrContent(char first, std::unique_ptr<AnswerParser> calls) : first_(first), calls_(std::move(calls)) {}
  void push(std::string_view text, ChoiceDelta& delta) override {
    if (!known_) {
      text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
      if (text.empty()) return;
      known_ = true;
      if (text.front() != first_) calls_.reset();
    }
    if (calls_) calls_->push(text, delta);
    else delta.content += text;
  }
  void flush(ChoiceDelta& delta) override {
    if (known_ && calls_) calls_->flush(delta);
  }

 private:
  char first_;
  std::unique_ptr<AnswerParser> calls_;
  bool known_ = false;
};
}  // namespace

std::vector<std::int32_t> chat_prompt_ids(const GenerationService& service, const ChatPrompt& prompt) {
  if (prompt.ids) return *prompt.ids;
  ChatTemplateInput input;
  input.messages = prompt.messages;
  if (!prompt.tools.empty()) input.tools = prompt.tools;
  input.add_generation_prompt = prompt.add_generation_prompt.value_or(!prompt.continue_final_message);
  input.continue_final_message = prompt.continue_final_message;
  input.extra = prompt.template_arguments;
  try {
    return service.model().encode_chat(input);
  } catch (const Error& e) {
    // A limit of the template or the tokenizer stays one however often the client asks again: 400, not 429.
    const ErrorCode code = e.code() == ErrorCode::resource_exhausted ? ErrorCode::invalid_argument : e.code();
    throw RequestError(code, service.model().has_chat() ? prompt.messages_field : "model", without_server_paths(e.what()));
  }
}

void answer_chat(const std::shared_ptr<GenerationService>& service, ChatRequest request, const std::string& owner, const std::shared_ptr<Responder>& responder,
                 const std::weak_ptr<Worker>& long_writer, const MakeChatWriter& make_writer, const std::weak_ptr<HeldStreams>& streams) {
  const std::shared_ptr<const AdapterWeights> adapter = require_model(*service, request.sampling.model);
  const Tokenizer& tokenizer = service->model().tokenizer();
  const Json tools = request.prompt.tools;
  ToolChoice choice = request.tool_choice;
  if (tools.empty()) choice.kind = ToolChoice::Kind::none;
  if (choice.kind == ToolChoice::Kind::none) request.prompt.tools = Json::array();  // tools that may not be called are not shown to the model

  if (choice.kind != ToolChoice::Kind::none && service->model().has_chat() && !service->model().shows_tools() && !request.prompt.ids)
    throw RequestError(ErrorCode::unsupported, "tools",
                       fmt::format("the chat template of model '{}' shows it no tools, so it would not know of them; `lockstep serve --tool-format NAME` tells "
                                   "it of them in the system message",
                                   service->model().name()),
                       400);

  AnswerOrder order;
  order.long_writer = long_writer;
  std::vector<std::int32_t> prompt = chat_prompt_ids(*service, request.prompt);
  const std::string prompt_field = request.prompt.ids ? "prompt_token_ids" : request.prompt.messages_field;
  order.shape = {.logprobs = request.logprobs,
                 .top_logprobs = request.top_logprobs > 0,
                 .token_ids = request.sampling.return_token_ids.value_or(false),
                 .prompt_token_ids = request.sampling.return_token_ids.value_or(false),
                 .usage_in_parts = request.sampling.include_usage};
  const bool reasons = prompt_opens_reasoning(tokenizer, prompt);
  const bool forced = choice.kind == ToolChoice::Kind::required || choice.kind == ToolChoice::Kind::named;
  const bool callable = choice.kind == ToolChoice::Kind::automatic;
  const ResponseFormat& answer_format = request.sampling.response_format;
  const bool formatted = answer_format.kind != ResponseFormat::Kind::text, either = callable && formatted;
  const bool strict = callable && !formatted && has_strict_tool(tools);
  if (strict && !request.sampling.stop.empty())
    fail_field("stop", "is given beside strict tools, whose calls stand within text that it may end; allowed is one of the two, or tool_choice required");
  if (formatted || forced || strict) hold_stops_to_grammar(*service, request.sampling, formatted ? "response_format" : forced ? "tool_choice" : "strict tools");
  CallConstraint held;
  if (forced) held = forced_call_constraint(service, tools, choice, request.parallel_tool_calls, reasons);
  else if (strict) held = strict_call_constraint(service, tools, request.parallel_tool_calls, reasons);
  else if (either) held = call_or_answer_constraint(service, tools, answer_format, request.parallel_tool_calls, reasons);
  else held = {format_constraint(service, answer_format, reasons), callable};
  order.completion = order_of(request.sampling, request.top_logprobs, "top_logprobs");
  order.completion.prompts.push_back({std::move(prompt), prompt_field});
  const Callers& callers = service->callers();
  order.completion.prefix_owner = callers.prefix_owner(owner);
  order.completion.account = callers.account(owner, class_of_tier(request.sampling.service_tier, callers.class_of(owner)));
  order.completion.keep_forward = kept_as_asked(*service, owner, request.sampling.keep_forward);
  order.completion.adapter = adapter;
  order.completion.make_constraint = held.make;
  if (request.sampling.skip_special_tokens) order.completion.special = held.own ? SpecialText::shown : SpecialText::reasoning_marks;
  const MessageFormat format = held.own ? service->model().message_format() : MessageFormat::plain;
  const auto types = std::make_shared<const ArgumentTypes>(tools);
  if (either || (forced && !held.own)) {
    order.make_parser = [=, name = choice.name, own = held.own, first = held.first] {
      std::unique_ptr<AnswerParser> parser;
      if (own) parser = std::make_unique<NativeParser>(format, types, false, true);
      else parser = std::make_unique<ForcedToolParser>(name);
      if (either) parser = std::make_unique<CallsOrContent>(first, std::move(parser));
      if (reasons) parser = std::make_unique<BehindReasoning>(std::move(parser));
      return parser;
    };
  } else if (forced || reasons || !formatted) {  // an answer that a grammar makes JSON has neither reasoning nor calls
    order.make_parser = [=, one_call = callable && !request.parallel_tool_calls] {
      return std::make_unique<NativeParser>(format, types, reasons, forced, one_call);
    };
  }
  order.model = request.sampling.model;
  order.stream = request.sampling.stream;
  order.hold = {owner, request.sampling.hold.seconds, streams};
  std::unique_ptr<AnswerWriter> writer = make_writer ? make_writer() : std::make_unique<ChatWriter>(tokenizer, order.shape);
  std::make_shared<AnswerRun>(service, std::move(order), std::move(writer), responder)->start();
}

}  // namespace lockstep
