#include "api/openai/answer_run.h"

#include <algorithm>
#include <chrono>

#include "api/openai/answer_constraint.h"
#include "base/client_work.h"
#include "base/entropy.h"
#include "base/hash.h"
#include "serving/context_limit.h"

namespace lockstep {
namespace {
constexpr std::size_t kLagBytes = 32 << 10;
constexpr std::size_t kFewTokens = 256;  // written in some tenths of a millisecond

// The engine names its own fields; the client knows OpenAI's.
std::string param_of(std::string_view message, const AnswerOrder& order, const std::string& prompt_field) {
  const std::string_view word = message.substr(0, message.find_first_of(" [."));
  if (word == "prompt") return prompt_field;
  if (word == "stop_tokens") return "stop_token_ids";
  if (word == "max_tokens") return order.sampling.max_tokens_field;
  if (word == "top_logprobs") return order.top_logprobs_field;
  for (std::string_view known :
       {"temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "seed"})
    if (word == known) return std::string(word);
  return {};
}

// The engine's complaint in the words of the request.
RequestError of_the_request(const Error& error, const AnswerOrder& order, const std::string& prompt_field) {
  const std::string param = param_of(error.message(), order, prompt_field);
  std::string message = error.message();
  if (!param.empty()) message.replace(0, message.find_first_of(" [."), param);
  return RequestError(error.code(), param, std::move(message));
}
}  // namespace

AnswerRun::AnswerRun(std::shared_ptr<GenerationService> service, AnswerOrder order, std::unique_ptr<AnswerWriter> writer,
                     std::shared_ptr<Responder> responder)
    : service_(std::move(service)), order_(std::move(order)), writer_(std::move(writer)), responder_(std::move(responder)) {
  head_.id = std::string(writer_->id_prefix()) + hex64(random_bits()) + hex64(random_bits()).substr(0, 8);
  head_.model = order_.adapter ? order_.sampling.model : service_->name();
  head_.profile = service_->profile_digest();
  head_.created = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  head_.seed = order_.sampling.seed.value_or(random_seed());
  keeps_tokens_ = order_.shape.logprobs || order_.shape.token_ids;
  // The body is gone when the first token comes; what is made of it stays, with a copy a choice in the engine.
  std::size_t bytes = 0;
  for (const AnswerOrder::Prompt& prompt : order_.prompts) bytes += prompt.ids.size() * sizeof(std::int32_t) * static_cast<std::size_t>(1 + order_.sampling.n);
  ClientWork::take(bytes);
  memory_ = ClientWork::keep(bytes);
}

Request AnswerRun::request_of(const AnswerOrder::Prompt& prompt) const {
  const SamplingFields& s = order_.sampling;
  const auto length = static_cast<std::int64_t>(prompt.ids.size());
  const std::int64_t context = longest_request(service_->limits());
  const std::int64_t least = std::max<std::int64_t>(order_.max_tokens, order_.max_tokens < 0 ? 1 : 0);
  if (length + least > context) {
    // Clients know this code and these words, and cut the conversation.
    const bool prompt_alone = order_.max_tokens < 0 || length > context;
    const std::string asked = prompt_alone ? fmt::format("{} makes {} tokens, and the answer has {} or more", prompt.field, length, least)
                                           : fmt::format("{} is {} behind a prompt of {} tokens", s.max_tokens_field, least, length);
    throw RequestError(ErrorCode::invalid_argument, prompt_alone ? prompt.field : s.max_tokens_field,
                       fmt::format("{}; this model's maximum context length is {} tokens", asked, context), 400, "context_length_exceeded");
  }
  const std::int64_t most = order_.max_tokens < 0 ? context - length : order_.max_tokens;
  return {.prompt = prompt.ids,
          .sampling = sampling_parameters(s, head_.seed, most, end_tokens_, order_.top_logprobs),
          .prompt_logprobs = order_.echo && order_.shape.logprobs,
          .adapter = order_.adapter,
          .prefix_owner = order_.prefix_owner};
}

std::vector<Request> AnswerRun::requests() {
  end_tokens_ = ends_of(*service_, order_.sampling, order_.make_constraint != nullptr);
  std::vector<Request> requests;
  for (const AnswerOrder::Prompt& prompt : order_.prompts) {
    usage_.prompt += static_cast<std::int64_t>(prompt.ids.size());
    Request request = request_of(prompt);
    try {
      service_->check(request);
    } catch (const Error& e) {
      throw of_the_request(e, order_, prompt.field);
    }
    for (std::int64_t i = 0; i < order_.sampling.n; ++i) {
      request.sampling.sample_index = static_cast<std::int32_t>(requests.size());  // of the whole request: equal prompts differ
      request.sampling.constraint = constraint_of_choice(*service_, order_.sampling, order_.make_constraint, end_tokens_);
      requests.push_back(request);
    }
  }
  return requests;
}

void AnswerRun::start() {
  std::vector<Request> all = requests();
  if (static_cast<std::int64_t>(all.size()) > service_->max_open())
    fail_field("n", fmt::format("asks for {} choices, allowed are at most {} at a time", all.size(), service_->max_open()));
  const Tokenizer& tokenizer = service_->tokenizer();
  const AnswerText::Rules rules{order_.sampling.stop, order_.sampling.skip_special_tokens ? order_.special : SpecialText::shown};
  choices_.reserve(all.size());
  for (std::size_t i = 0; i < all.size(); ++i)
    choices_.push_back({.text = AnswerText(tokenizer, rules, prompt_of(i), order_.make_parser ? order_.make_parser() : nullptr),
                        .characters = Detokenizer(tokenizer, order_.sampling.skip_special_tokens)});
  if (keeps_tokens_)
    for (std::size_t i = 0; i < choices_.size(); ++i) choices_[i].characters.begin_after(prompt_of(i));
  open_ = all.size();
  const auto self = shared_from_this();
  std::vector<std::uint64_t> ids = service_->generate_all(
      std::move(all), [self](std::size_t i, const GeneratedToken& token) { return self->on_token(i, token); },
      [self](std::size_t i, Generation&& generation) { self->on_done(i, std::move(generation)); });
  {
    const std::lock_guard lock(mutex_);
    ids_ = std::move(ids);
  }
  responder_->on_abandoned([weak = weak_from_this()] {
    if (const auto run = weak.lock()) run->abandon();
  });
}

void AnswerRun::abandon() {
  abandoned_ = true;
  std::vector<std::uint64_t> ids;
  {
    const std::lock_guard lock(mutex_);
    ids.swap(ids_);
  }
  for (const std::uint64_t id : ids) service_->cancel(id);
}

void AnswerRun::add_token(Choice& choice, AnswerToken token) {
  if (!keeps_tokens_) return;
  token.offset = choice.offset;
  choice.offset += count_characters(choice.characters.push(token.id));
  choice.delta.tokens.push_back(std::move(token));
}

bool AnswerRun::on_token(std::size_t index, const GeneratedToken& token) {
  if (failed_) return false;
  Choice& choice = choices_[index];
  choice.held = order_.echo && order_.shape.logprobs;  // the prompt's part comes first, and is known at the end
  if (order_.echo && !choice.echoed && !choice.held) echo(index, nullptr);
  if (!any_token_ || token.weights_version != head_.weights_version) {
    head_.mixed_versions = head_.mixed_versions || any_token_;
    head_.weights_version = std::max(head_.weights_version, token.weights_version);
    any_token_ = true;
    writer_->set_head(head_);
  }
  AnswerToken shown{.id = token.id, .logprob = token.raw_logprob, .sampling_logprob = token.sampling_logprob};
  if (order_.shape.top_logprobs) shown.top = token.top;
  add_token(choice, std::move(shown));
  ++choice.completion_tokens;
  if (std::find(end_tokens_.begin(), end_tokens_.end(), token.id) == end_tokens_.end()) {
    const std::size_t before = choice.delta.reasoning.size();
    choice.text.push(token.id, choice.delta);
    choice.reasoning_tokens += choice.delta.reasoning.size() > before;
  }
  if (!choice.held) show(index);
  return !choice.text.stopped();
}

// The prompt as the beginning of the answer.
void AnswerRun::echo(std::size_t index, const Generation* generation) {
  Choice& choice = choices_[index];
  choice.echoed = true;
  const std::vector<std::int32_t>& prompt = prompt_of(index);
  ChoiceDelta answer = std::move(choice.delta);
  choice.delta = {};
  const std::int64_t characters = std::exchange(choice.offset, 0);
  Detokenizer detokenizer(service_->tokenizer(), order_.sampling.skip_special_tokens);
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    AnswerToken token{.id = prompt[i], .offset = choice.offset, .of_prompt = true};
    if (generation != nullptr && i > 0) {
      token.logprob = generation->prompt_logprobs.at(i - 1);
      if (order_.shape.top_logprobs && i <= generation->prompt_top_logprobs.size()) token.top = generation->prompt_top_logprobs[i - 1];
    }
    const std::string text = detokenizer.push(prompt[i]);
    choice.offset += count_characters(text);
    choice.delta.content += text;
    if (generation != nullptr) choice.delta.tokens.push_back(std::move(token));
  }
  // What the prompt's end holds back (half a character) comes with the answer's text, which goes on from there.
  for (AnswerToken& token : answer.tokens) token.offset += choice.offset;
  choice.offset += characters;
  choice.delta.append(std::move(answer));
}

void AnswerRun::on_done(std::size_t index, Generation&& generation) {
  if (failed_) return;
  Choice& choice = choices_[index];
  if (generation.finish == FinishReason::error) return fail_with(Error(ErrorCode::numeric, generation.error));
  if (generation.finish == FinishReason::cancelled)
    return fail_with(Error(ErrorCode::cancelled, abandoned_ && !responder_->abandoned_by_server() ? "the client ended its connection; the request was not finished"
                                                            : "the server is stopping; the request was not finished"));
  if (!any_token_) {
    head_.weights_version = service_->weights_version();
    writer_->set_head(head_);
  }
  choice.text.flush(choice.delta);
  choice.called_tools = choice.called_tools || !choice.delta.tool_calls.empty();
  const bool stopped = generation.finish == FinishReason::stop || choice.text.stopped();
  choice.delta.finish = !stopped ? "length" : choice.called_tools ? "tool_calls" : "stop";
  if (order_.echo && !choice.echoed) echo(index, order_.shape.logprobs ? &generation : nullptr);
  if (index % static_cast<std::size_t>(order_.sampling.n) == 0) usage_.cached += generation.cached_tokens;
  choice.held = false;
  usage_.completion += choice.completion_tokens;
  usage_.reasoning += choice.reasoning_tokens;
  --open_;
  show(index);
}

// The same request gets the same ids, another turn of the same talk others.
std::string AnswerRun::call_id(std::size_t index, std::size_t call) const {
  const std::vector<std::int32_t>& prompt = prompt_of(index);
  const std::uint64_t salt = head_.seed ^ (index << 32 | call) * 0x9E3779B97F4A7C15;
  return "call_" + hex64(xxh3(prompt.data(), prompt.size() * sizeof(std::int32_t), salt));
}

// Tells at the end of the step what the choice gained.
void AnswerRun::show(std::size_t index) {
  Choice& choice = choices_[index];
  for (ToolCallDelta& call : choice.delta.tool_calls) {
    choice.called_tools = true;
    if (!call.name.empty() && call.id.empty()) call.id = call_id(index, call.index);
  }
  if (due_ || (!order_.sampling.stream && open_ > 0)) return;
  due_ = true;
  service_->after_step([self = shared_from_this()] { self->flush(); });
}

void AnswerRun::flush() {
  due_ = false;
  if (failed_) return;
  if (!order_.sampling.stream) return finish();
  // A client that lags gets the tokens of several steps in one part: fewer bytes, and no queue of ours.
  if (open_ > 0 && responder_->pending_bytes() > kLagBytes) return;
  std::string events;
  for (std::size_t index = 0; index < choices_.size(); ++index) {
    Choice& choice = choices_[index];
    if (choice.held || choice.delta.says_nothing()) continue;
    writer_->append_event(events, index, choice.delta, !choice.began, prompt_of(index));
    choice.began = true;
    choice.delta = {};
  }
  const bool done = open_ == 0;
  if (done) writer_->append_end(events, usage_);
  if (events.empty()) return;
  if (!streaming_) responder_->begin_stream("text/event-stream");
  streaming_ = true;
  responder_->stream(std::move(events));
  if (done) responder_->end_stream();
}

// The choices are whole, and no one else touches them any more.
void AnswerRun::finish() {
  std::size_t tokens = 0;
  for (const Choice& choice : choices_)
    for (const AnswerToken& token : choice.delta.tokens) tokens += 1 + token.top.size();
  const auto worker = tokens > kFewTokens ? order_.long_writer.lock() : nullptr;
  const bool taken = worker && worker->post([self = shared_from_this()] {
    try {
      self->send_whole();
    } catch (const std::exception& e) {
      self->responder_->send(error_response(e));
    }
  });
  if (!taken) send_whole();
}

void AnswerRun::send_whole() {
  std::vector<AnswerWriter::WholeChoice> whole;
  whole.reserve(choices_.size());
  for (std::size_t i = 0; i < choices_.size(); ++i) whole.push_back({&choices_[i].delta, &prompt_of(i)});
  responder_->send({200, "application/json", writer_->whole(whole, usage_), {}});
}

void AnswerRun::fail_with(const Error& error) {
  failed_ = true;
  if (streaming_) {
    std::string events;
    writer_->append_failure(events, error);
    responder_->stream(std::move(events));
    responder_->end_stream();
  } else {
    responder_->send(error_response(error));
  }
  abandon();
}

}  // namespace lockstep
