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
    : service_(std::move(service)), order_(std::move(order)), writer_(std::move(writer)), responder_(std::move(responder)) {
  head_.id = std::string(writer_->id_prefix()) + hex64(random_bits()) + hex64(random_bits()).substr(0, 8);
  head_.model = order_.completion.adapter ? order_.model : service_->model().name();
  head_.profile = service_->model().profile_digest();
  head_.created = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  head_.seed = order_.completion.sampling.seed;
  head_.service_tier = tier_of_class(order_.completion.account ? order_.completion.account->work : WorkClass::live);
  keeps_tokens_ = order_.shape.logprobs || order_.shape.token_ids;
  names_snapshots_ = !order_.completion.weights && !order_.completion.adapter;  // given weights and adapters have version numbers of their own
  // The body is freed before the first token comes; the prompts stay, with a copy for each choice in the engine.
  std::size_t bytes = 0;
  for (const CompletionOrder::Prompt& prompt : order_.completion.prompts)
    bytes += (prompt.ids.size() * sizeof(std::int32_t) + order_.completion.drafts.bytes()) * static_cast<std::size_t>(1 + order_.completion.samples);
  ClientWork::take(bytes);
  memory_ = ClientWork::keep(bytes);
}

void AnswerRun::start() {
  const std::size_t choices = order_.completion.prompts.size() * static_cast<std::size_t>(order_.completion.samples);
  choices_.resize(choices);
  for (std::size_t i = 0; i < choices; ++i) {
    usage_.prompt += i % static_cast<std::size_t>(order_.completion.samples) == 0 ? static_cast<std::int64_t>(prompt_of(i).size()) : 0;
    if (order_.make_parser) choices_[i].parser = order_.make_parser();
    if (!order_.shape.text_offsets) continue;
    choices_[i].characters.emplace(service_->model().tokenizer(), order_.completion.special == SpecialText::hidden);
    choices_[i].characters->begin_after(prompt_of(i));
  }
  open_ = choices;
  const auto self = shared_from_this();
  std::vector<std::uint64_t> ids;
  try {
    if (order_.completion.holds.any()) ids.push_back(start_held());
    else
      ids = start_completion(
          *service_, order_.completion, [self](std::size_t i, const GeneratedToken& token, const std::string& text) { return self->on_token(i, token, text); },
          [self](std::size_t i, CompletionEnd&& end) { self->on_end(i, std::move(end)); });
  } catch (const OrderError& e) {
    throw RequestError(e.code(), e.field(), e.message(), e.word().empty() ? 0 : 400, e.word());
  }
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
  if (choice.characters) choice.offset += count_characters(choice.characters->push(token.id));
  choice.delta.tokens.push_back(std::move(token));
}

void AnswerRun::add_text(Choice& choice, const std::string& text) {
  if (text.empty()) return;
  if (choice.parser) choice.parser->push(text, choice.delta);
  else choice.delta.content += text;
}

bool AnswerRun::on_token(std::size_t index, const GeneratedToken& token, const std::string& text) {
  if (failed_) return false;
  if (!notices_.empty()) send_events(false);  // notices go out before the token that follows them
  kept_ids_ += token.kept.count;
  if (kept_ids_ > order_.most_kept_ids) {
    fail_with(Error(ErrorCode::invalid_argument, fmt::format("the sets of tokens that this answer's tokens were drawn from have more than {} ids, allowed are "
                                                             "so many; ask for fewer tokens, or for smaller sets (top_k, top_p, min_p)",
                                                             order_.most_kept_ids)));
    return false;
  }
  Choice& choice = choices_[index];
  choice.held = tells_prompt_logprobs();  // the prompt's part comes first, and is known at the end
  if (order_.echo > 0 && !choice.echoed && !choice.held) echo(index, nullptr);
  // The tokens of one event have one version: send those of the last version first if a slow client has not got them yet.
  if (order_.stream && !choice.held && choice.any_token && choice.version != token.weights_version && !choice.delta.says_nothing()) send_events(false);
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
  if (!choice.held) show(index);
  return !choice.parser || !choice.parser->over();
}

// Puts the prompt's last tokens before the answer.
void AnswerRun::echo(std::size_t index, const Generation* generation) {
  Choice& choice = choices_[index];
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

void AnswerRun::on_end(std::size_t index, CompletionEnd&& end) {
  if (order_.completion.holds.any())
    if (const auto streams = order_.hold.streams.lock()) streams->remove(head_.id);
  if (failed_) return;
  Choice& choice = choices_[index];
  const Generation& generation = end.generation;
  if (end.finish == FinishReason::error) return fail_with(Error(order_.broken, generation.error));
  if (end.finish == FinishReason::cancelled && !generation.error.empty())
    return fail_with(RequestError(ErrorCode::cancelled, "hold", generation.error, 408, "hold_expired"));
  if (end.finish == FinishReason::cancelled)
    return fail_with(Error(ErrorCode::cancelled, abandoned_ && !responder_->abandoned_by_server()
                                                     ? "the client ended its connection; the request was not finished"
                                                     : "the server is stopping; the request was not finished"));
  if (!choice.any_token) choice.version = service_->weights().version();
  add_text(choice, end.text);
  if (choice.parser) choice.parser->flush(choice.delta);
  choice.called_tools = choice.called_tools || !choice.delta.tool_calls.empty();
  const bool stopped = end.finish == FinishReason::stop || (choice.parser && choice.parser->over());
  choice.delta.finish = !stopped ? "length" : choice.called_tools ? "tool_calls" : "stop";
  if (order_.echo > 0 && !choice.echoed) echo(index, tells_prompt_logprobs() ? &generation : nullptr);
  if (index % static_cast<std::size_t>(order_.completion.samples) == 0) usage_.cached += generation.cached_tokens;
  choice.held = false;
  usage_.completion += choice.completion_tokens;
  usage_.reasoning += choice.reasoning_tokens;
  usage_.predicted = order_.completion.drafts.predicts();
  usage_.predicted_right += generation.drafts.accepted_by(DraftKind::prediction);
  usage_.predicted_wrong += generation.drafts.tokens_by(DraftKind::prediction) - generation.drafts.accepted_by(DraftKind::prediction);
  usage_.times = generation.times;
  --open_;
  show(index);
}

// The same request gets the same ids, another turn of the same talk others.
std::string AnswerRun::call_id(std::size_t index, std::size_t call) const {
  const std::vector<std::int32_t>& prompt = prompt_of(index);
  const std::uint64_t salt = head_.seed ^ (index << 32 | call) * 0x9E3779B97F4A7C15;
  return "call_" + hex64(xxh3(prompt.data(), prompt.size() * sizeof(std::int32_t), salt));
}

// Has the choice's new text and tokens sent at the end of the step.
void AnswerRun::show(std::size_t index) {
  Choice& choice = choices_[index];
  for (ToolCallDelta& call : choice.delta.tool_calls) {
    choice.called_tools = true;
    if (!call.name.empty() && call.id.empty()) call.id = call_id(index, call.index);
  }
  if (due_ || (!order_.stream && open_ > 0)) return;
  due_ = true;
  service_->after_step([self = shared_from_this()] { self->flush(); });
}

void AnswerRun::flush() {
  due_ = false;
  if (failed_) return;
  const auto write = order_.stream ? &AnswerRun::send_last_events : &AnswerRun::send_whole;
  // Once all choices have ended, no other thread changes them.
  if (open_ == 0 && !write_elsewhere(write)) (this->*write)();
  // A slow client gets the tokens of several steps in one event: fewer bytes, and no queue here.
  // What waits for it is not kept waiting.
  if (open_ > 0 && (!notices_.empty() || responder_->pending_bytes() <= kLagBytes)) send_events(false);
}

bool AnswerRun::write_elsewhere(void (AnswerRun::*write)()) {
  std::size_t tokens = 0;
  for (const Choice& choice : choices_)
    for (const AnswerToken& token : choice.delta.tokens) tokens += token.written();
  const auto worker = tokens > kFewTokens ? order_.long_writer.lock() : nullptr;
  return worker && worker->post([self = shared_from_this(), write] {
    try {
      (*self.*write)();
    } catch (const std::exception& e) {
      log_error("an answer could not be written", {{"reason", e.what()}});
      self->fail_with(Error(ErrorCode::internal, "the answer could not be written; the server's log says more"));
    }
  });
}

// The head of an event names the weights that its tokens come from.
void AnswerRun::use_head(std::uint64_t version, bool mixed) {
  if (headed_ && head_.weights_version == version && head_.mixed_versions == mixed) return;
  headed_ = true;
  head_.weights_version = version;
  head_.mixed_versions = mixed;
  if (names_snapshots_) {
    const SnapshotVersion known = service_->weights().named(version);
    head_.snapshot = known.snapshot;
    head_.identity = known.identity;
  }
  writer_->set_head(head_);
}

void AnswerRun::send_events(bool done) {
  std::string events;
  for (std::size_t index = 0; index < choices_.size(); ++index) {
    Choice& choice = choices_[index];
    if (choice.held || choice.delta.says_nothing()) continue;
    use_head(choice.version, choice.mixed);
    writer_->append_event(events, index, choice.delta, !choice.began, prompt_of(index));
    choice.began = true;
    choice.mixed = false;
    choice.delta = {};
  }
  for (const HoldNotice& notice : std::exchange(notices_, {})) {
    use_head(choices_[0].version, false);
    writer_->append_hold(events, 0, notice);
  }
  if (done) writer_->append_end(events, usage_);
  if (events.empty()) return;
  if (!streaming_) responder_->begin_stream("text/event-stream");
  streaming_ = true;
  responder_->stream(std::move(events));
  if (done) responder_->end_stream();
}

void AnswerRun::send_whole() {
  // Where choices have different versions, the newest is named.
  std::uint64_t version = 0;
  bool mixed = false;
  for (const Choice& choice : choices_) version = std::max(version, choice.version), mixed = mixed || choice.mixed;
  use_head(version, mixed);
  std::vector<AnswerWriter::WholeChoice> whole;
  whole.reserve(choices_.size());
  for (std::size_t i = 0; i < choices_.size(); ++i) whole.push_back({&choices_[i].delta, &prompt_of(i)});
  ApiResponse response{200, "application/json", writer_->whole(whole, usage_), {}};
  response.headers = writer_->headers();
  responder_->send(std::move(response));
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
