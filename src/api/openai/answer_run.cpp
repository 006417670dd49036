#include "api/openai/answer_run.h"

#include <algorithm>
#include <chrono>

#include "api/errors.h"
#include "api/openai/service_tier.h"
#include "base/client_work.h"
#include "base/entropy.h"
#include "base/hash.h"
#include "base/log.h"

namespace lockstep {
namespace {
constexpr std::size_t kLagBytes = 32 << 10;
constexpr std::size_t kFewTokens = 256;  // written in some tenths of a millisecond
}  // namespace

AnswerRun::AnswerRun(std::shared_ptr<GenerationService> service, AnswerOrder order, std::unique_ptr<AnswerWriter> writer, std::shared_ptr<Responder> responder)
    : service_(std::move(service)),
      order_(std::move(order)),
      responder_(std::move(responder)),
      id_(std::string(writer->id_prefix()) + hex64(random_bits()) + hex64(random_bits()).substr(0, 8)),
      keeps_tokens_(order_.shape.logprobs || order_.shape.token_ids),
      names_snapshots_(!order_.completion.weights && !order_.completion.adapter),  // given weights and adapters have version numbers of their own
      answer_(first_answer(std::move(writer))) {
  // The body is freed before the first token comes; the prompts stay, with a copy for each choice in the engine.
  std::size_t bytes = 0;
  for (const CompletionOrder::Prompt& prompt : order_.completion.prompts)
    bytes += (prompt.ids.size() * sizeof(std::int32_t) + order_.completion.drafts.bytes()) * static_cast<std::size_t>(1 + order_.completion.samples);
  ClientWork::take(bytes);
  memory_ = ClientWork::hold(bytes);
}

AnswerRun::Answer AnswerRun::first_answer(std::unique_ptr<AnswerWriter> writer) const {
  Answer answer;
  answer.writer = std::move(writer);
  answer.head.id = id_;
  answer.head.model = order_.completion.adapter ? order_.model : service_->model().name();
  answer.head.profile = service_->model().profile_digest();
  answer.head.created = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  answer.head.seed = order_.completion.sampling.seed;
  answer.head.service_tier = tier_of_class(order_.completion.account ? order_.completion.account->work : WorkClass::live);
  answer.usage.holds = order_.completion.holds.any();
  const std::size_t choices = order_.completion.prompts.size() * static_cast<std::size_t>(order_.completion.samples);
  answer.choices.resize(choices);
  for (std::size_t i = 0; i < choices; ++i) {
    answer.usage.prompt += i % static_cast<std::size_t>(order_.completion.samples) == 0 ? static_cast<std::int64_t>(prompt_of(i).size()) : 0;
    if (order_.make_parser) answer.choices[i].parser = order_.make_parser();
    if (!order_.shape.text_offsets) continue;
    answer.choices[i].characters.emplace(service_->model().tokenizer(), order_.completion.special == SpecialText::hidden);
    answer.choices[i].characters->begin_after(prompt_of(i));
  }
  answer.open = choices;
  return answer;
}

void AnswerRun::start() {
  const auto self = shared_from_this();
  std::vector<std::uint64_t> ids;
  try {
    if (order_.completion.holds.any()) ids.push_back(start_held());
    else
      ids = start_completion(
          *service_, order_.completion,
          [self](const OnExecutor& on, std::size_t i, const GeneratedToken& token, const std::string& text) { return self->on_token(on, i, token, text); },
          [self](const OnExecutor& on, std::size_t i, CompletionEnd&& end) { self->on_end(on, i, std::move(end)); });
  } catch (const OrderError& e) {
    throw RequestError(e.code(), e.field(), e.message(), e.word().empty() ? 0 : 400, e.word());
  }
  {
    const auto known = ids_.lock();
    *known = std::move(ids);
  }
  responder_->on_abandoned([weak = weak_from_this()] {
    if (const auto run = weak.lock()) run->abandon();
  });
}

void AnswerRun::abandon() {
  abandoned_ = true;
  std::vector<std::uint64_t> ids;
  {
    const auto known = ids_.lock();
    ids.swap(*known);
  }
  for (const std::uint64_t id : ids) service_->cancel(id);
}

void AnswerRun::add_token(Choice& choice, AnswerToken token) const {
  if (!keeps_tokens_) return;
  token.offset = choice.offset;
  if (choice.characters) choice.offset += count_characters(choice.characters->push(token.id));
  choice.delta.tokens.push_back(std::move(token));
}

void AnswerRun::add_text(Choice& choice, const std::string& text) const {
  if (text.empty()) return;
  if (choice.parser) choice.parser->push(text, choice.delta);
  else choice.delta.content += text;
}

bool AnswerRun::on_token(const OnExecutor& on, std::size_t index, const GeneratedToken& token, const std::string& text) {
  Answer& answer = answer_.at(on);
  if (answer.failed) return false;
  if (!answer.notices.empty()) send_events(answer, false);  // notices go out before the token that follows them
  answer.kept_ids += token.kept.count;
  if (answer.kept_ids > order_.most_kept_ids) {
    fail_with(answer, Error(ErrorCode::invalid_argument,
                            fmt::format("the sets of tokens that this answer's tokens were drawn from have more than {} ids, allowed are so many; ask for "
                                        "fewer tokens, or for smaller sets (top_k, top_p, min_p)",
                                        order_.most_kept_ids)));
    return false;
  }
  Choice& choice = answer.choices[index];
  choice.held = tells_prompt_logprobs();  // the prompt's part comes first, and is known at the end
  if (order_.echo > 0 && !choice.echoed && !choice.held) echo(choice, index, nullptr);
  // The tokens of one event have one version: send those of the last version first if a slow client has not got them yet.
  if (order_.stream && !choice.held && choice.any_token && choice.version != token.weights_version && !choice.delta.says_nothing()) send_events(answer, false);
  choice.any_token = true;
  choice.version = token.weights_version;
  choice.mixed = choice.mixed || token.mixed;
  AnswerToken shown{.id = token.id, .logprob = token.raw_logprob, .sampling_logprob = token.sampling_logprob, .experts = token.experts, .kept = token.kept};
  if (order_.shape.top_logprobs) shown.top = token.top;
  add_token(choice, std::move(shown));
  ++choice.completion_tokens;
  const std::size_t before = choice.delta.reasoning.size();
  add_text(choice, text);
  choice.reasoning_tokens += choice.delta.reasoning.size() > before;
  if (!choice.held) show(on, index);
  return !choice.parser || !choice.parser->over();
}

// Puts the prompt's last tokens before the answer.
void AnswerRun::echo(Choice& choice, std::size_t index, const Generation* generation) const {
  choice.echoed = true;
  const std::vector<std::int32_t>& prompt = prompt_of(index);
  ChoiceDelta answer = std::move(choice.delta);
  choice.delta = {};
  const std::int64_t characters = std::exchange(choice.offset, 0);
  std::optional<Detokenizer> detokenizer;
  if (service_->model().has_tokenizer()) detokenizer.emplace(service_->model().tokenizer(), order_.completion.special == SpecialText::hidden);
  for (std::size_t i = prompt.size() - std::min(prompt.size(), order_.echo); i < prompt.size(); ++i) {
    AnswerToken token{.id = prompt[i], .offset = choice.offset, .of_prompt = true};
    if (generation != nullptr && i > 0) {
      token.logprob = generation->prompt_logprobs.at(i - 1);
      if (order_.shape.top_logprobs && i <= generation->prompt_top_logprobs.size()) token.top = generation->prompt_top_logprobs[i - 1];
      if (i <= generation->prompt_experts.size()) token.experts = generation->prompt_experts[i - 1];
    }
    const std::string text = detokenizer ? detokenizer->push(prompt[i]) : "";
    choice.offset += count_characters(text);
    choice.delta.content += text;
    if (keeps_tokens_ && (generation != nullptr || order_.shape.echo_ids)) choice.delta.tokens.push_back(std::move(token));
  }
  // Half a character at the prompt's end is shown with the answer's text, which completes it.
  for (AnswerToken& token : answer.tokens) token.offset += choice.offset;
  choice.offset += characters;
  choice.delta.append(std::move(answer));
}

void AnswerRun::on_end(const OnExecutor& on, std::size_t index, CompletionEnd&& end) {
  if (order_.completion.holds.any())
    if (const auto streams = order_.hold.streams.lock()) streams->remove(id_);
  Answer& answer = answer_.at(on);
  if (answer.failed) return;
  Choice& choice = answer.choices[index];
  const Generation& generation = end.generation;
  if (end.finish == FinishReason::error) return fail_with(answer, Error(order_.broken, generation.error));
  if (end.finish == FinishReason::cancelled && !generation.error.empty())
    return fail_with(answer, RequestError(ErrorCode::cancelled, "hold", generation.error, 408, "hold_expired"));
  if (end.finish == FinishReason::cancelled)
    return fail_with(
        answer, Error(ErrorCode::cancelled, abandoned_ && !responder_->abandoned_by_server() ? "the client ended its connection; the request was not finished"
                                                                                             : "the server is stopping; the request was not finished"));
  if (!choice.any_token) choice.version = service_->weights().version();
  add_text(choice, end.text);
  if (choice.parser) choice.parser->flush(choice.delta);
  choice.called_tools = choice.called_tools || !choice.delta.tool_calls.empty();
  const bool stopped = end.finish == FinishReason::stop || (choice.parser && choice.parser->over());
  choice.delta.finish = !stopped ? "length" : choice.called_tools ? "tool_calls" : "stop";
  if (order_.echo > 0 && !choice.echoed) echo(choice, index, tells_prompt_logprobs() ? &generation : nullptr);
  if (index % static_cast<std::size_t>(order_.completion.samples) == 0) answer.usage.cached += generation.cached_tokens;
  choice.held = false;
  answer.usage.completion += choice.completion_tokens;
  answer.usage.reasoning += choice.reasoning_tokens;
  answer.usage.predicted = order_.completion.drafts.predicts();
  answer.usage.predicted_right += generation.drafts.accepted_by(DraftKind::prediction);
  answer.usage.predicted_wrong += generation.drafts.tokens_by(DraftKind::prediction) - generation.drafts.accepted_by(DraftKind::prediction);
  answer.usage.times = generation.times;
  --answer.open;
  show(on, index);
}

// The same request gets the same ids, another turn of the same talk others.
std::string AnswerRun::call_id(std::size_t index, std::size_t call) const {
  const std::vector<std::int32_t>& prompt = prompt_of(index);
  const std::uint64_t salt = order_.completion.sampling.seed ^ (index << 32 | call) * 0x9E3779B97F4A7C15;
  return "call_" + hex64(xxh3(prompt.data(), prompt.size() * sizeof(std::int32_t), salt));
}

// Has the choice's new text and tokens sent at the end of the step.
void AnswerRun::show(const OnExecutor& on, std::size_t index) {
  Answer& answer = answer_.at(on);
  Choice& choice = answer.choices[index];
  for (ToolCallDelta& call : choice.delta.tool_calls) {
    choice.called_tools = true;
    if (!call.name.empty() && call.id.empty()) call.id = call_id(index, call.index);
  }
  if (answer.due || (!order_.stream && answer.open > 0)) return;
  answer.due = true;
  service_->after_step(on, [self = shared_from_this()](const OnExecutor& step) { self->flush(step); });
}

void AnswerRun::flush(const OnExecutor& on) {
  Answer& answer = answer_.at(on);
  answer.due = false;
  if (answer.failed) return;
  // A slow client gets the tokens of several steps in one event: fewer bytes, and no queue here.
  // What waits for it is not kept waiting.
  if (answer.open > 0) {
    if (!answer.notices.empty() || responder_->pending_bytes() <= kLagBytes) send_events(answer, false);
    return;
  }
  std::size_t tokens = 0;
  for (const Choice& choice : answer.choices)
    for (const AnswerToken& token : choice.delta.tokens) tokens += token.written();
  // All choices have ended, so nothing is added: a long answer goes to the thread that writes it.
  const auto last = std::make_shared<Answer>(std::move(answer));
  const auto worker = tokens > kFewTokens ? order_.long_writer.lock() : nullptr;
  const bool taken = worker && worker->post([self = shared_from_this(), last] {
    try {
      self->send_last(*last);
    } catch (const std::exception& e) {
      log_error("an answer could not be written", {{"reason", e.what()}});
      self->fail_with(*last, Error(ErrorCode::internal, "the answer could not be written; the server's log says more"));
    }
  });
  if (!taken) send_last(*last);
}

// The head of an event names the weights that its tokens come from.
void AnswerRun::use_head(Answer& answer, std::uint64_t version, bool mixed) const {
  AnswerHead& head = answer.head;
  if (answer.headed && head.weights_version == version && head.mixed_versions == mixed) return;
  answer.headed = true;
  head.weights_version = version;
  head.mixed_versions = mixed;
  if (names_snapshots_) {
    const SnapshotVersion known = service_->weights().named(version);
    head.snapshot = known.snapshot;
    head.identity = known.identity;
  }
  answer.writer->set_head(head);
}

void AnswerRun::send_events(Answer& answer, bool done) const {
  std::string events;
  for (std::size_t index = 0; index < answer.choices.size(); ++index) {
    Choice& choice = answer.choices[index];
    if (choice.held || choice.delta.says_nothing()) continue;
    use_head(answer, choice.version, choice.mixed);
    answer.writer->append_event(events, index, choice.delta, !choice.began, prompt_of(index));
    choice.began = true;
    choice.mixed = false;
    choice.delta = {};
  }
  for (const HoldNotice& notice : std::exchange(answer.notices, {})) {
    use_head(answer, answer.choices[0].version, false);
    answer.writer->append_hold(events, 0, notice);
  }
  if (done) answer.writer->append_end(events, answer.usage);
  if (events.empty()) return;
  if (!answer.streaming) responder_->begin_stream("text/event-stream");
  answer.streaming = true;
  responder_->stream(std::move(events));
  if (done) responder_->end_stream();
}

void AnswerRun::send_whole(Answer& answer) const {
  // Where choices have different versions, the newest is named.
  std::uint64_t version = 0;
  bool mixed = false;
  for (const Choice& choice : answer.choices) version = std::max(version, choice.version), mixed = mixed || choice.mixed;
  use_head(answer, version, mixed);
  std::vector<AnswerWriter::WholeChoice> whole;
  whole.reserve(answer.choices.size());
  for (std::size_t i = 0; i < answer.choices.size(); ++i) whole.push_back({&answer.choices[i].delta, &prompt_of(i)});
  ApiResponse response{200, "application/json", answer.writer->whole(whole, answer.usage), {}};
  response.headers = answer.writer->headers();
  responder_->send(std::move(response));
}

void AnswerRun::send_last(Answer& answer) {
  if (order_.stream) send_events(answer, true);
  else send_whole(answer);
}

void AnswerRun::fail_with(Answer& answer, const Error& error) {
  answer.failed = true;
  if (answer.streaming) {
    std::string events;
    answer.writer->append_failure(events, error);
    responder_->stream(std::move(events));
    responder_->end_stream();
  } else {
    responder_->send(error_response(error));
  }
  abandon();
}

}  // namespace lockstep
