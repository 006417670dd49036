#include "api/openai/held_streams.h"

#include <algorithm>
#include <vector>

#include "api/json_fields.h"
#include "api/sampling_values.h"

namespace lockstep {
namespace {
HoldAction decode_action(const std::string& body) {
  std::string kind;
  HoldAction action;
  std::optional<std::int64_t> position;
  JsonFields fields;
  fields.choice("action", &kind, {"continue", "stop", "rollback"});
  fields.integer("position", &position, 0, kMostId);
  fields.custom("tokens", [&](const Json& value, const std::string& field) { action.tokens = json_token_ids(value, field); });
  fields.text("text", &action.text);
  fields.read(parse_object(body));
  if (kind.empty()) fail_field("action", "is missing, allowed are continue, stop and rollback");
  action.kind = kind == "continue" ? HoldAction::Kind::go_on : kind == "stop" ? HoldAction::Kind::stop : HoldAction::Kind::roll_back;
  if (action.kind == HoldAction::Kind::roll_back) {
    if (!position) fail_field("position", "is missing; it says how many tokens of the answer are kept");
    action.position = *position;
  } else if (position) {
    fail_field("position", fmt::format("is given with the action {}, allowed is rollback", kind));
  }
  return action;
}

std::string_view state_after(HoldAction::Kind kind) { return kind == HoldAction::Kind::stop ? "stopped" : "generating"; }
}  // namespace

HeldStreams::~HeldStreams() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (watch_.joinable()) watch_.join();
}

void HeldStreams::add(const std::string& id, const std::string& owner, double seconds, const std::shared_ptr<HeldCompletion>& completion) {
  const std::lock_guard lock(mutex_);
  std::int64_t& own = of_key_[owner];
  if (own >= kMostOfAKey) fail(ErrorCode::resource_exhausted, "this API key has {} open streams that may be held, allowed are so many; try again later", own);
  ++own;
  streams_[id] = {owner, seconds, completion, {}, 0, 0};
}

void HeldStreams::remove(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto known = streams_.find(id);
  if (known == streams_.end()) return;
  const auto own = of_key_.find(known->second.owner);
  if (--own->second == 0) of_key_.erase(own);
  streams_.erase(known);
}

void HeldStreams::held(const std::string& id, std::int64_t number, std::int64_t position) {
  const std::lock_guard lock(mutex_);
  const auto known = streams_.find(id);
  if (known == streams_.end()) return;
  Stream& stream = known->second;
  stream.until = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(stream.seconds));
  stream.number = number;
  stream.position = position;
  if (!watch_.joinable()) watch_ = std::thread([this] { watch(); });
  changed_.notify_all();
}

void HeldStreams::resumed(const std::string& id) {
  const std::lock_guard lock(mutex_);
  if (const auto known = streams_.find(id); known != streams_.end()) known->second.until.reset();
}

void HeldStreams::watch() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    std::optional<Clock::time_point> next;
    std::vector<Stream> late;
    const auto now = Clock::now();
    for (auto& [id, stream] : streams_) {
      if (!stream.until) continue;
      if (*stream.until <= now) {
        late.push_back(stream);
        stream.until.reset();
      } else {
        next = next ? std::min(*next, *stream.until) : *stream.until;
      }
    }
    if (!late.empty()) {
      lock.unlock();
      for (const Stream& stream : late)
        if (const auto completion = stream.completion.lock())
          completion->expire(stream.number,
                             fmt::format("the stream was held at position {} for {} seconds, and nobody said how it goes on (POST /v1/streams/ID, "
                                         "hold.seconds); it has ended there",
                                         stream.position, stream.seconds));
      lock.lock();
      continue;
    }
    if (next) changed_.wait_until(lock, *next);
    else changed_.wait(lock);
  }
}

// Null for a stream of another key.
std::shared_ptr<HeldCompletion> HeldStreams::find(const std::string& id, const std::string& owner) const {
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = streams_.find(id); known != streams_.end() && known->second.owner == owner)
      if (auto completion = known->second.completion.lock()) return completion;
  }
  throw RequestError(ErrorCode::not_found, "id",
                     fmt::format("there is no open stream '{}' that may be held; the id is that of its answer, while it lasts", shown(id)), 0,
                     "stream_not_found");
}

void HeldStreams::act(const ApiRequest& request, const std::shared_ptr<Responder>& out) {
  const std::string id(request.parameter("id"));
  HoldAction action = decode_action(request.body);
  const std::shared_ptr<HeldCompletion> completion = find(id, request.key_name);
  completion->act(std::move(action), [id, out](const HoldOutcome* outcome, const Error* fault) {
    if (const auto* order = dynamic_cast<const OrderError*>(fault))
      return out->send(
          error_response(RequestError(order->code(), order->field(), order->message(), order->word().empty() ? 0 : http_status(order->code()), order->word())));
    if (fault) return out->send(error_response(*fault));
    Json answer{{"id", id}, {"object", "stream"}, {"state", state_after(outcome->kind)}, {"position", outcome->position}, {"attempt", outcome->attempt}};
    if (outcome->kind == HoldAction::Kind::roll_back) {
      answer["rolled_back"] = outcome->rolled_back;
      answer["token_ids"] = outcome->put_in;
      answer["text"] = outcome->text;
    }
    out->send({200, "application/json", answer.dump(-1, ' ', false, Json::error_handler_t::replace), {}});
  });
}

}  // namespace lockstep
