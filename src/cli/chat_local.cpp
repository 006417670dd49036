#include <algorithm>
#include <chrono>
#include <condition_variable>

#include "base/entropy.h"
#include "base/error.h"
#include "base/signals.h"
#include "cli/chat_model.h"
#include "serving/chat_prompt.h"
#include "serving/completion.h"
#include "serving/context_limit.h"
#include "serving/served_defaults.h"

namespace lockstep {
namespace {
class LocalChat : public ChatModel {
 public:
  LocalChat(ServingModel model, const DraftOptions& drafts) : service_(std::move(model), {.engine = {.drafts = drafts}, .max_open = 1}) {}
  std::string name() const override { return service_.model().name(); }
  Json about() const override {
    return {{"model", service_.model().name()}, {"weights_version", service_.weights().version()}, {"profile", service_.model().profile_digest()}};
  }
  std::optional<ChatSettings> usual() const override {
    const GenerationDefaults& d = service_.model().defaults();
    ChatSettings s;
    s.temperature = d.temperature.value_or(kTalkTemperature);
    s.top_p = d.top_p.value_or(d.says_sampling() ? 1 : kTalkTopP);
    s.min_p = d.min_p.value_or(0);
    s.repetition_penalty = d.repetition_penalty.value_or(1);
    s.top_k = d.top_k.value_or(0);
    return s;
  }
  End answer(const Json& messages, const ChatSettings& settings, const Show& show) override;

 private:
  GenerationService service_;
};

ChatModel::End LocalChat::answer(const Json& messages, const ChatSettings& settings, const Show& show) {
  ChatTemplateInput input;
  input.messages = messages;
  const Tokenizer& tokenizer = service_.model().tokenizer();
  std::vector<std::int32_t> prompt = service_.model().encode_chat(input);
  const std::int64_t context = longest_request(service_.limits());
  if (static_cast<std::int64_t>(prompt.size()) >= context)
    fail(ErrorCode::invalid_argument, "the talk has {} tokens and the context {}; /reset begins anew", prompt.size(), context);
  MessageParser parser(MessageFormat::plain, Json::array(), prompt_opens_reasoning(tokenizer, prompt));
  CompletionOrder order{.prompts = {{std::move(prompt)}}, .shorten = true, .special = SpecialText::reasoning_marks};
  if (settings.max_tokens > 0) order.max_tokens = settings.max_tokens;
  SamplingParameters& s = order.sampling;
  const ChatSettings usual = *this->usual();
  const auto number = [](const std::optional<double>& given, const std::optional<double>& otherwise) { return static_cast<float>(given.value_or(*otherwise)); };
  s.temperature = number(settings.temperature, usual.temperature);
  s.top_p = number(settings.top_p, usual.top_p);
  s.top_k = static_cast<std::int32_t>(settings.top_k.value_or(*usual.top_k));
  s.min_p = number(settings.min_p, usual.min_p);
  s.repetition_penalty = number(settings.repetition_penalty, usual.repetition_penalty);
  s.presence_penalty = service_.model().defaults().presence_penalty.value_or(0);
  s.frequency_penalty = service_.model().defaults().frequency_penalty.value_or(0);
  s.seed = settings.seed.value_or(random_seed());

  const auto tell = [&](const MessageDelta& delta) {
    if (!delta.empty()) show(delta.reasoning, delta.content);
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<CompletionEnd> done;
  const auto on_token = [&](const OnExecutor&, std::size_t, const GeneratedToken&, const std::string& text) {
    tell(parser.push(text));
    return true;
  };
  const auto on_end = [&](const OnExecutor&, std::size_t, CompletionEnd&& end) {
    tell(parser.push(end.text));
    tell(parser.flush());
    const std::lock_guard lock(mutex);
    done = std::move(end);
    changed.notify_all();
  };
  const std::uint64_t id = start_completion(service_, order, on_token, on_end).front();
  bool stopped = false;
  {
    std::unique_lock lock(mutex);
    while (!done) {
      changed.wait_for(lock, std::chrono::milliseconds(50));
      if (done || stopped || !interrupted()) continue;
      stopped = true;
      lock.unlock();
      service_.cancel(id);
      lock.lock();
    }
  }
  if (stopped) return End::stopped;
  if (done->finish == FinishReason::error)
    fail(ErrorCode::numeric, "the answer failed after {} tokens: {}", done->generation.tokens.size(), done->generation.error);
  return done->finish == FinishReason::length ? End::length : End::whole;
}
}  // namespace

std::unique_ptr<ChatModel> local_chat_model(const RuntimeSettings& runtime, const std::string& chat_template, const std::string& generation_config,
                                            const DraftOptions& drafts) {
  const OpenedModel opened = open_model(runtime);
  ServingModel model = serving_model(opened);
  add_chat(model, runtime.model, chat_template);
  add_generation_config(model, runtime.model, generation_config);
  if (!model.tokenizer || !model.chat_template)
    fail(ErrorCode::unsupported, "'{}' has no {}, so there is no way to talk with it; `lockstep generate` continues a text", runtime.model,
         model.tokenizer ? "chat template" : "tokenizer.json");
  return std::make_unique<LocalChat>(std::move(model), drafts);
}

}  // namespace lockstep
