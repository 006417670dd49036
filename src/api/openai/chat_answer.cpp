#include "api/openai/chat_answer.h"

#include <utility>

#include "api/openai/answer_constraint.h"
#include "api/openai/answer_run.h"
#include "api/openai/completion_answer.h"
#include "api/openai/forced_tool_parser.h"
#include "api/openai/native_parser.h"
#include "service/chat_prompt.h"

namespace lockstep {
namespace {
// Reasoning first, in the model's own way; behind it the calls that the grammar forced.
class ForcedAfterReasoning : public AnswerParser {
 public:
  explicit ForcedAfterReasoning(std::string name) : native_(MessageFormat::plain, std::make_shared<const ArgumentTypes>(Json::array()), true), calls_(std::move(name)) {}
  void push(std::string_view text, ChoiceDelta& delta) override {
    ChoiceDelta parts;
    native_.push(text, parts);
    take(std::move(parts), delta);
  }
  void flush(ChoiceDelta& delta) override {
    ChoiceDelta parts;
    native_.flush(parts);
    take(std::move(parts), delta);
  }

 private:
  void take(ChoiceDelta&& parts, ChoiceDelta& delta) {
    const std::string text = std::exchange(parts.content, {});
    delta.append(std::move(parts));
    if (!text.empty()) calls_.push(text, delta);
  }
  NativeParser native_;
  ForcedToolParser calls_;
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
    return service.encode_chat(input);
  } catch (const Error& e) {
    // A limit of the template or the tokenizer stays one however often the client asks again: 400, not 429.
    const ErrorCode code = e.code() == ErrorCode::resource_exhausted ? ErrorCode::invalid_argument : e.code();
    throw RequestError(code, service.has_chat() ? "messages" : "model", e.what());
  }
}

void answer_chat(const std::shared_ptr<GenerationService>& service, ChatRequest request, const std::shared_ptr<Responder>& responder,
                 const std::weak_ptr<Worker>& long_writer) {
  require_model(*service, request.sampling.model);
  const Tokenizer& tokenizer = service->tokenizer();
  const Json tools = request.prompt.tools;
  ToolChoice choice = request.tool_choice;
  if (tools.empty()) choice.kind = ToolChoice::Kind::none;
  if (choice.kind == ToolChoice::Kind::none) request.prompt.tools = Json::array();  // what may not be called is not shown

  AnswerOrder order;
  order.long_writer = long_writer;
  order.prompts.push_back({chat_prompt_ids(*service, request.prompt), request.prompt.ids ? "prompt_token_ids" : "messages"});
  order.max_tokens = request.sampling.max_tokens.value_or(-1);
  order.top_logprobs = static_cast<std::int32_t>(request.top_logprobs);
  order.top_logprobs_field = "top_logprobs";
  order.shape = {.logprobs = request.logprobs,
                 .top_logprobs = request.top_logprobs > 0,
                 .token_ids = request.sampling.return_token_ids.value_or(false),
                 .prompt_token_ids = request.sampling.return_token_ids.value_or(false),
                 .usage_in_parts = request.sampling.include_usage};
  const bool reasons = prompt_opens_reasoning(tokenizer, order.prompts.front().ids);
  const bool forced = choice.kind == ToolChoice::Kind::required || choice.kind == ToolChoice::Kind::named;
  const bool callable = choice.kind == ToolChoice::Kind::automatic;
  if (callable && request.sampling.response_format.kind != ResponseFormat::Kind::text)
    throw RequestError(ErrorCode::unsupported, "response_format",
                       "response_format holds the whole answer to its grammar, so none of the tools could be called; allowed beside it are tool_choice none, required or a function", 400);
  const bool own_calls = callable || (forced && !service->call_markup().empty());
  const MessageFormat format = own_calls ? service->message_format() : MessageFormat::plain;
  order.special = own_calls ? SpecialText::shown : SpecialText::reasoning_marks;
  if (forced) order.make_constraint = forced_call_constraint(service, tools, choice, request.parallel_tool_calls, reasons);
  if (forced && !own_calls) {
    order.make_parser = [reasons, name = choice.name]() -> std::unique_ptr<AnswerParser> {
      if (reasons) return std::make_unique<ForcedAfterReasoning>(name);
      return std::make_unique<ForcedToolParser>(name);
    };
  } else {
    if (!forced) order.make_constraint = format_constraint(service, request.sampling.response_format, reasons);
    // What a grammar holds to JSON has neither reasoning nor calls in it.
    const bool plain = request.sampling.response_format.kind != ResponseFormat::Kind::text && !reasons && !forced;
    if (!plain)
      order.make_parser = [format, types = std::make_shared<const ArgumentTypes>(tools), reasons, forced] {
        return std::make_unique<NativeParser>(format, types, reasons, forced);
      };
  }
  order.sampling = std::move(request.sampling);
  auto writer = std::make_unique<ChatWriter>(tokenizer, order.shape);
  std::make_shared<AnswerRun>(service, std::move(order), std::move(writer), responder)->start();
}

}  // namespace lockstep
