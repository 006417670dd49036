#include "serving/held_completion.h"

#include <algorithm>
#include <utility>

namespace lockstep {

namespace {
// Its request, where it can be held; OrderError where not.
Request held_request(const CompletionOrder& order, GenerationService& service) {
  if (order.prompts.size() * static_cast<std::size_t>(order.samples) != 1)
    fail_order(order, "hold", fmt::format("is given with {} choices, allowed is one", order.prompts.size() * static_cast<std::size_t>(order.samples)));
  if (!order.holds.any()) fail_order(order, "hold", "says nothing, allowed are a number of tokens, strings, or both");
  if (order.holds.strings.size() > HoldOrder::kMostStrings)
    fail_order(order, "hold.strings", fmt::format("has {} strings, allowed are at most {}", order.holds.strings.size(), HoldOrder::kMostStrings));
  for (const std::string& string : order.holds.strings)
    if (string.empty() || string.size() > HoldOrder::kLongestString)
      fail_order(order, "hold.strings", fmt::format("has a string of {} bytes, allowed are 1 to {}", string.size(), HoldOrder::kLongestString));
  if (order.prompt_logprobs) fail_order(order, "hold", "is given with log-probabilities of the prompt, allowed is one of the two");
  Request request = std::move(requests_of(order, service).front());
  // Where a cycle of guesses began would show in the tokens (docs/speculation.md).
  if (request.drafts && request.drafts->rejects()) fail_order(order, "hold", "is given with rejection sampling of guesses, allowed is coupled acceptance");
  return request;
}
}  // namespace

HeldCompletion::HeldCompletion(std::shared_ptr<GenerationService> service, const CompletionOrder& order, Callbacks callbacks)
    : service_(std::move(service)),
      order_(order),
      ends_(end_tokens_of(order, *service_)),
      first_(held_request(order, *service_)),
      answer_(Answer{.callbacks = std::move(callbacks),
                     .text = new_text(),
                     .points = HoldPoints(order.holds, service_->model().has_tokenizer() ? &service_->model().tokenizer() : nullptr)}) {}

std::optional<TextStream> HeldCompletion::new_text() const {
  if (!service_->model().has_tokenizer()) return std::nullopt;
  std::optional<TextStream> text(std::in_place, service_->model().tokenizer(), order_.stops, order_.special);
  text->begin_after(first_.prompt);
  return text;
}

std::uint64_t HeldCompletion::start() {
  const auto self = shared_from_this();
  const std::uint64_t id = service_
                               ->generate_all(
                                   {first_}, [self](const OnExecutor& on, std::size_t, const GeneratedToken& t) { return self->token(on, t); },
                                   [self](const OnExecutor& on, std::size_t, Generation&& g) { self->end(on, std::move(g)); },
                                   [self](const OnExecutor& on, std::size_t, Generation& g) { return self->part(on, g); })
                               .front();
  id_ = id;
  return id;
}

bool HeldCompletion::ends(std::int32_t id) const { return std::find(ends_.begin(), ends_.end(), id) != ends_.end(); }

bool HeldCompletion::token(const OnExecutor& on, const GeneratedToken& token) {
  Answer& answer = answer_.at(on);
  answer.said.push_back(token);
  std::string text;
  bool more = true;
  const bool last = ends(token.id) || std::ssize(answer.said) >= first_.sampling.max_tokens;
  if (answer.text && !ends(token.id)) {
    text = answer.text->push(token.id);
    more = !answer.text->stopped();
  }
  if (answer.callbacks.on_token) more = answer.callbacks.on_token(on, token, std::move(text)) && more;
  answer.found = answer.points.push(token.id);
  if (!more || last) answer.found.reset();
  return more && !answer.found;
}

std::vector<std::int32_t> HeldCompletion::Answer::said_ids() const {
  std::vector<std::int32_t> ids;
  ids.reserve(said.size());
  for (const GeneratedToken& token : said) ids.push_back(token.id);
  return ids;
}

bool HeldCompletion::part(const OnExecutor& on, Generation& part) {
  Answer& answer = answer_.at(on);
  if (!answer.found) return false;
  id_ = part.id;
  if (answer.cached_tokens < 0) answer.cached_tokens = part.cached_tokens;
  const Hold hold{++answer.number, std::ssize(answer.said), first_.sampling.attempt + answer.roll_backs, *std::exchange(answer.found, {}), answer.said_ids()};
  const std::optional<HoldAction> action = answer.callbacks.on_hold(on, hold);
  if (!action) return true;
  try {
    service_->resume(part.id, [self = shared_from_this(), action = *action](const OnExecutor& step, bool) {
      HoldOutcome outcome;
      try {
        return self->resumed(step, action, outcome);
      } catch (const Error& e) {
        return Resumption{.kind = Resumption::Kind::ends, .finish = FinishReason::error, .error = e.what()};
      }
    });
  } catch (const Error&) {  // the service stops, and cancels it
  }
  return true;
}

void HeldCompletion::act(HoldAction action, Told told) {
  service_->resume(id_, [self = shared_from_this(), action = std::move(action), told = std::move(told)](const OnExecutor& on, bool held) {
    HoldOutcome outcome;
    Resumption next;
    try {
      if (!held) throw OrderError(ErrorCode::already_exists, {}, "the stream is not held: it generates, or has ended", "not_held");
      next = self->resumed(on, action, outcome);
    } catch (const Error& e) {
      told(nullptr, &e);
      return Resumption{};
    }
    told(&outcome, nullptr);
    return next;
  });
}

void HeldCompletion::expire(std::int64_t number, const std::string& reason) {
  try {
    service_->resume(id_, [self = shared_from_this(), number, reason](const OnExecutor& on, bool held) {
      if (!held || number != self->answer_.at(on).number) return Resumption{};
      return Resumption{.kind = Resumption::Kind::ends, .finish = FinishReason::cancelled, .error = reason};
    });
  } catch (const Error&) {  // the service has stopped, and ended it
  }
}

// While it is held. Nothing has changed where it throws.
Resumption HeldCompletion::resumed(const OnExecutor& on, const HoldAction& action, HoldOutcome& outcome) {
  Answer& answer = answer_.at(on);
  Resumption next{.kind = Resumption::Kind::goes_on};
  outcome.kind = action.kind;
  if (action.kind != HoldAction::Kind::roll_back && (!action.tokens.empty() || !action.text.empty()))
    throw OrderError(ErrorCode::invalid_argument, action.text.empty() ? "tokens" : "text", "tokens are put in by roll_back alone");
  switch (action.kind) {
    case HoldAction::Kind::stop:
      next.kind = Resumption::Kind::ends;
      next.finish = FinishReason::stop;
      break;
    case HoldAction::Kind::go_on:
      next.next = request_of_rest(answer);
      break;
    case HoldAction::Kind::roll_back:
      roll_back(answer, action, outcome, next);
      break;
  }
  outcome.position = std::ssize(answer.said);
  outcome.attempt = first_.sampling.attempt + answer.roll_backs;
  if (answer.callbacks.on_resumed) answer.callbacks.on_resumed(on, outcome);
  return next;
}

// The prompt, the answer as it stands, and what is left to say.
Request HeldCompletion::request_of_rest(const Answer& answer) const {
  Request rest = first_;
  for (const GeneratedToken& token : answer.said) rest.prompt.push_back(token.id);
  rest.said = static_cast<std::int32_t>(answer.said.size());
  rest.sampling.max_tokens -= rest.said;
  rest.sampling.attempt += answer.roll_backs;
  rest.sampling.constraint = constraint_of_sample(order_, *service_, ends_);
  return rest;
}

std::vector<std::int32_t> HeldCompletion::tokens_put_in(const HoldAction& action, std::int64_t position) const {
  std::vector<std::int32_t> tokens = action.tokens;
  if (!action.text.empty()) {
    if (!tokens.empty()) throw OrderError(ErrorCode::invalid_argument, "text", "text is given beside tokens, allowed is one of them");
    tokens = service_->model().tokenizer().encode(action.text, false);
  }
  const char* field = action.text.empty() ? "tokens" : "text";
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= service_->limits().vocabulary)
      throw OrderError(ErrorCode::invalid_argument, field,
                       fmt::format("{}[{}] is {}, allowed are token ids from 0 to {}", field, i, tokens[i], service_->limits().vocabulary - 1));
    if (ends(tokens[i]))
      throw OrderError(ErrorCode::invalid_argument, field, fmt::format("{}[{}] is {}, which ends the answer; allowed is the action stop", field, i, tokens[i]));
  }
  const std::int64_t most = first_.sampling.max_tokens - position - 1;
  if (std::ssize(tokens) > most)
    throw OrderError(ErrorCode::invalid_argument, field,
                     fmt::format("{} has {} tokens, allowed are at most {}, which leave one of max_tokens ({}) to say", field, tokens.size(), most,
                                 first_.sampling.max_tokens));
  return tokens;
}

void HeldCompletion::roll_back(Answer& answer, const HoldAction& action, HoldOutcome& outcome, Resumption& next) {
  if (action.position < 0 || action.position > std::ssize(answer.said))
    throw OrderError(ErrorCode::invalid_argument, "position",
                     fmt::format("position is {}, allowed is 0 to {}, which is where the stream is held", action.position, answer.said.size()));
  if (answer.roll_backs >= HoldOrder::kMostRollBacks)
    throw OrderError(ErrorCode::invalid_argument, "action", fmt::format("the stream was rolled back {} times, allowed are so many", HoldOrder::kMostRollBacks));
  if (first_.sampling.attempt + answer.roll_backs >= SamplingParameters::kMaxAttempt)
    throw OrderError(ErrorCode::invalid_argument, "action", fmt::format("the attempt is {}, and there is none after it", SamplingParameters::kMaxAttempt));
  const std::vector<std::int32_t> put_in = tokens_put_in(action, action.position);
  const std::vector<GeneratedToken> before = answer.said;
  const std::int32_t roll_backs = answer.roll_backs;
  answer.said.resize(static_cast<std::size_t>(action.position));
  for (const std::int32_t id : put_in) {
    GeneratedToken token;
    token.id = id;
    token.put_in = true;
    answer.said.push_back(std::move(token));
  }
  ++answer.roll_backs;
  std::optional<TextStream> text;
  try {
    next.next = request_of_rest(answer);
    service_->check(next.next);
    if (TokenConstraint* constraint = next.next.sampling.constraint.get()) {  // what it refuses is known now
      for (const GeneratedToken& token : answer.said) constraint->accept(token.id);
      constraint->truncate(0);
    }
    if (answer.text) {
      text = new_text();
      for (const GeneratedToken& token : answer.said) outcome.text += text->push(token.id);
      if (text->stopped()) throw OrderError(ErrorCode::invalid_argument, "text", "what is put in makes a stop string whole; allowed is the action stop");
    }
  } catch (const std::exception& e) {
    answer.said = before;
    answer.roll_backs = roll_backs;
    outcome = {};
    const auto* fault = dynamic_cast<const OrderError*>(&e);
    if (fault) throw;
    const char* field = action.text.empty() ? "tokens" : "text";
    throw OrderError(ErrorCode::invalid_argument, field, fmt::format("what is put in cannot stand there: {}", e.what()));
  }
  answer.text = std::move(text);
  answer.points.restart();
  for (const GeneratedToken& token : answer.said) answer.points.push(token.id);
  outcome.rolled_back = std::ssize(before) - action.position;
  outcome.put_in = put_in;
  outcome.tokens = answer.said_ids();
  next.rolled_back = true;
  next.put_in = put_in.size();
}

void HeldCompletion::end(const OnExecutor& on, Generation&& generation) {
  Answer& answer = answer_.at(on);
  if (answer.cached_tokens >= 0) generation.cached_tokens = answer.cached_tokens;
  generation.tokens = std::move(answer.said);
  CompletionEnd end{{}, generation.finish, std::move(generation)};
  if (answer.text) {
    end.text = answer.text->flush();
    if (end.finish == FinishReason::length && answer.text->stopped()) end.finish = FinishReason::stop;
  }
  const Callbacks callbacks = std::exchange(answer.callbacks, {});  // which may hold this
  callbacks.on_end(on, std::move(end));
}

}  // namespace lockstep
