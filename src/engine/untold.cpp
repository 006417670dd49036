#include "engine/untold.h"

#include <algorithm>

namespace lockstep {

void Untold::add(Sequence& s, const GeneratedToken& token) {
  ++counters_.sampled_tokens;
  counters_.mixed_version_tokens += s.mixed_versions;
  if (s.on_token) events_.push_back({&s, token, nullptr});
}

void Untold::add_end(std::unique_ptr<Sequence> s) {
  Sequence* const sequence = s.get();
  events_.push_back({sequence, {}, std::move(s)});
}

std::size_t Untold::forget(const Sequence& s, std::size_t most) {
  std::size_t dropped = 0;
  for (std::size_t i = events_.size(); i-- > 0 && dropped < most;) {
    if (events_[i].sequence != &s || events_[i].done) continue;
    events_.erase(events_.begin() + static_cast<std::ptrdiff_t>(i));
    ++dropped;
  }
  counters_.sampled_tokens -= static_cast<std::int64_t>(dropped);
  counters_.mixed_version_tokens -= s.mixed_versions ? static_cast<std::int64_t>(dropped) : 0;
  return dropped;
}

bool Untold::drop(Sequence& s) {
  const std::size_t dropped = forget(s, s.generation.tokens.size());
  s.generation.tokens.resize(s.generation.tokens.size() - dropped);
  s.tokens.resize(static_cast<std::size_t>(s.accepted()));
  return dropped > 0;
}

void Untold::cancel(std::uint64_t id) {
  const auto end = std::find_if(events_.begin(), events_.end(), [id](const Event& event) { return event.done && event.done->id == id; });
  if (end == events_.end()) return;
  Sequence& s = *end->done;  // forgetting its tokens moves the event
  const bool failed = s.generation.finish == FinishReason::error && s.drafting;
  if (!drop(s) && !failed) return;
  counters_.failed_requests -= failed;
  s.generation.finish = FinishReason::cancelled;
  s.generation.error.clear();
}

Untold::Event Untold::take() {
  Event event = std::move(events_.front());
  events_.pop_front();
  return event;
}

}  // namespace lockstep
