#include "serving/held_completion.h"

#include <algorithm>
#include <utility>

namespace lockstep {

HeldCompletion::HeldCompletion(std::shared_ptr<GenerationService> service, const CompletionOrder& order, Callbacks callbacks)
    : service_(std::move(service)),
      order_(order),
      callbacks_(std::move(callbacks)),
      ends_(end_tokens_of(order, *service_)),
      points_(order.holds, service_->model().has_tokenizer() ? &service_->model().tokenizer() : nullptr) {
  if (order.prompts.size() * static_cast<std::size_t>(order.samples) != 1)
    fail_order(order, "hold", fmt::format("is given with {} choices, allowed is one", order.prompts.size() * static_cast<std::size_t>(order.samples)));
  if (!order.holds.any()) fail_order(order, "hold", "says nothing, allowed are a number of tokens, strings, or both");
  if (order.holds.strings.size() > HoldOrder::kMostStrings)
    fail_order(order, "hold.strings", fmt::format("has {} strings, allowed are at most {}", order.holds.strings.size(), HoldOrder::kMostStrings));
  for (const std::string& string : order.holds.strings)
    if (string.empty() || string.size() > HoldOrder::kLongestString)
      fail_order(order, "hold.strings", fmt::format("has a string of {} bytes, allowed are 1 to {}", string.size(), HoldOrder::kLongestString));
  if (order.prompt_logprobs) fail_order(order, "hold", "is given with log-probabilities of the prompt, allowed is one of the two");
  std::vector<Request> requests = requests_of(order, *service_);
  first_ = std::move(requests.front());
  // Where a cycle of guesses began would show in the tokens (docs/speculation.md).
  if (first_.drafts && first_.drafts->rejects()) fail_order(order, "hold", "is given with rejection sampling of guesses, allowed is coupled acceptance");
  if (!service_->model().has_tokenizer()) return;
  text_.emplace(new_text());
}

TextStream HeldCompletion::new_text() const {
  TextStream text(service_->model().tokenizer(), order_.stops, order_.special);
  text.begin_after(first_.prompt);
  return text;
}

std::uint64_t HeldCompletion::start() {
  const auto self = shared_from_this();
  const std::uint64_t id =
      service_
          ->generate_all(
              {first_}, [self](std::size_t, const GeneratedToken& t) { return self->token(t); },
              [self](std::size_t, Generation&& g) { self->end(std::move(g)); }, [self](std::size_t, Generation& g) { return self->part(g); })
          .front();
  id_ = id;
  return id;
}

bool HeldCompletion::ends(std::int32_t id) const { return std::find(ends_.begin(), ends_.end(), id) != ends_.end(); }

bool HeldCompletion::token(const GeneratedToken& token) {
  said_.push_back(token);
  std::string text;
  bool more = true;
  const bool last = ends(token.id) || std::ssize(said_) >= first_.sampling.max_tokens;
  if (text_ && !ends(token.id)) {
    text = text_->push(token.id);
    more = !text_->stopped();
  }
  if (callbacks_.on_token) more = callbacks_.on_token(token, std::move(text)) && more;
  found_ = points_.push(token.id);
  if (!more || last) found_.reset();
  return more && !found_;
}

std::vector<std::int32_t> HeldCompletion::said_ids() const {
  std::vector<std::int32_t> ids;
  ids.reserve(said_.size());
  for (const GeneratedToken& token : said_) ids.push_back(token.id);
  return ids;
}

bool HeldCompletion::part(Generation& part) {
  if (!found_) return false;
  id_ = part.id;
  if (cached_tokens_ < 0) cached_tokens_ = part.cached_tokens;
  const Hold hold{++number_, std::ssize(said_), first_.sampling.attempt + roll_backs_, *std::exchange(found_, {}), said_ids()};
  const std::optional<HoldAction> action = callbacks_.on_hold(hold);
  if (!action) return true;
  try {
    service_->resume(part.id, [self = shared_from_this(), action = *action](bool) {
      HoldOutcome outcome;
      try {
        return self->resumed(action, outcome);
      } catch (const Error& e) {
        return Resumption{.kind = Resumption::Kind::ends, .finish = FinishReason::error, .error = e.what()};
      }
    });
  } catch (const Error&) {  // the service stops, and cancels it
  }
  return true;
}

void HeldCompletion::act(HoldAction action, Told told) {
  service_->resume(id_, [self = shared_from_this(), action = std::move(action), told = std::move(told)](bool held) {
    HoldOutcome outcome;
    Resumption next;
    try {
      if (!held) throw OrderError(ErrorCode::already_exists, {}, "the stream is not held: it generates, or has ended", "not_held");
      next = self->resumed(action, outcome);
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
    service_->resume(id_, [self = shared_from_this(), number, reason](bool held) {
      if (!held || number != self->number_) return Resumption{};
      return Resumption{.kind = Resumption::Kind::ends, .finish = FinishReason::cancelled, .error = reason};
    });
  } catch (const Error&) {  // the service has stopped, and ended it
  }
}

// On the executor's thread, while it is held. Nothing has changed where it throws.
Resumption HeldCompletion::resumed(const HoldAction& action, HoldOutcome& outcome) {
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
      next.next = request_of_rest();
      break;
    case HoldAction::Kind::roll_back:
      roll_back(action, outcome, next);
      break;
  }
  outcome.position = std::ssize(said_);
  outcome.attempt = first_.sampling.attempt + roll_backs_;
  if (callbacks_.on_resumed) callbacks_.on_resumed(outcome);
  return next;
}

// The prompt, the answer as it stands, and what is left to say.
Request HeldCompletion::request_of_rest() const {
  Request rest = first_;
  for (const GeneratedToken& token : said_) rest.prompt.push_back(token.id);
  rest.said = static_cast<std::int32_t>(said_.size());
  rest.sampling.max_tokens -= rest.said;
  rest.sampling.attempt += roll_backs_;
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

void HeldCompletion::roll_back(const HoldAction& action, HoldOutcome& outcome, Resumption& next) {
  if (action.position < 0 || action.position > std::ssize(said_))
    throw OrderError(ErrorCode::invalid_argument, "position",
                     fmt::format("position is {}, allowed is 0 to {}, which is where the stream is held", action.position, said_.size()));
  if (roll_backs_ >= HoldOrder::kMostRollBacks)
    throw OrderError(ErrorCode::invalid_argument, "action", fmt::format("the stream was rolled back {} times, allowed are so many", HoldOrder::kMostRollBacks));
  if (first_.sampling.attempt + roll_backs_ >= SamplingParameters::kMaxAttempt)
    throw OrderError(ErrorCode::invalid_argument, "action", fmt::format("the attempt is {}, and there is none after it", SamplingParameters::kMaxAttempt));
  const std::vector<std::int32_t> put_in = tokens_put_in(action, action.position);
  const std::vector<GeneratedToken> before = said_;
  const std::int32_t roll_backs = roll_backs_;
  said_.resize(static_cast<std::size_t>(action.position));
  for (const std::int32_t id : put_in) {
    GeneratedToken token;
    token.id = id;
    token.put_in = true;
    said_.push_back(std::move(token));
  }
  ++roll_backs_;
  std::optional<TextStream> text;
  try {
    next.next = request_of_rest();
    service_->check(next.next);
    if (TokenConstraint* constraint = next.next.sampling.constraint.get()) {  // what it refuses is known now
      for (const GeneratedToken& token : said_) constraint->accept(token.id);
      constraint->truncate(0);
    }
    if (text_) {
      text.emplace(new_text());
      for (const GeneratedToken& token : said_) outcome.text += text->push(token.id);
      if (text->stopped()) throw OrderError(ErrorCode::invalid_argument, "text", "what is put in makes a stop string whole; allowed is the action stop");
    }
  } catch (const std::exception& e) {
    said_ = before;
    roll_backs_ = roll_backs;
    outcome = {};
    const auto* fault = dynamic_cast<const OrderError*>(&e);
    if (fault) throw;
    const char* field = action.text.empty() ? "tokens" : "text";
    throw OrderError(ErrorCode::invalid_argument, field, fmt::format("what is put in cannot stand there: {}", e.what()));
  }
  text_ = std::move(text);
  points_.restart();
  for (const GeneratedToken& token : said_) points_.push(token.id);
  outcome.rolled_back = std::ssize(before) - action.position;
  outcome.put_in = put_in;
  outcome.tokens = said_ids();
  next.rolled_back = true;
  next.put_in = put_in.size();
}

void HeldCompletion::end(Generation&& generation) {
  if (cached_tokens_ >= 0) generation.cached_tokens = cached_tokens_;
  generation.tokens = std::move(said_);
  CompletionEnd end{{}, generation.finish, std::move(generation)};
  if (text_) {
    end.text = text_->flush();
    if (end.finish == FinishReason::length && text_->stopped()) end.finish = FinishReason::stop;
  }
  const Callbacks callbacks = std::exchange(callbacks_, {});  // which may hold this
  callbacks.on_end(std::move(end));
}

}  // namespace lockstep
