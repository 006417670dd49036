#include "text/grammar/stacks.h"

#include <algorithm>

namespace lockstep {

bool Stacks::same(std::int32_t a, std::int32_t b) const {
  while (a != b) {
    if (a == kBottom || b == kBottom) return false;
    const Frame &x = frame(a), &y = frame(b);
    if (x.state != y.state || x.count != y.count) return false;
    a = x.below;
    b = y.below;
  }
  return true;
}

void Stacks::add(std::int32_t top, std::vector<std::int32_t>& out) const {
  if (out.size() >= kMaxStacks) return;
  if (std::none_of(out.begin(), out.end(), [&](std::int32_t other) { return same(top, other); })) out.push_back(top);
}

std::int32_t Stacks::enter(std::int32_t top, const Machine::Call& call) {
  const Frame f = frame(top);
  const Machine::Rule& callee = machine_->rules[static_cast<std::size_t>(machine_->states[static_cast<std::size_t>(call.start)].rule)];
  if (!enterable(call.back, room(f)) || !enterable(call.start, room(f) - callee.container)) return kBottom;
  const std::int32_t caller = push(f.below, call.back, f.count + call.counts, f.depth);
  return push(caller, call.start, 0, f.depth + callee.container);
}

void Stacks::step(std::int32_t top, std::uint8_t byte, std::vector<std::int32_t>& out) {
  const Frame f = frame(top);
  const Machine::State& state = machine_->states[static_cast<std::size_t>(f.state)];
  if (may_step(f, byte)) add(over(f, byte), out);
  const std::uint32_t last = machine_->states[static_cast<std::size_t>(f.state) + 1].calls;
  for (std::uint32_t c = state.calls; c < last; ++c)
    if (const std::int32_t callee = enter(top, machine_->calls[c]); callee != kBottom) step(callee, byte, out);
  if (state.accepts && f.below != kBottom) step(f.below, byte, out);
}

void Stacks::step_token(std::int32_t top, std::int32_t token, std::vector<std::int32_t>& out) {
  const Frame f = frame(top);
  const Machine::State& state = machine_->states[static_cast<std::size_t>(f.state)];
  const Machine::State& next = machine_->states[static_cast<std::size_t>(f.state) + 1];
  for (std::uint32_t t = state.tokens; t < next.tokens; ++t)
    if (machine_->tokens[t].id == token && enterable(machine_->tokens[t].to, room(f))) add(push(f.below, machine_->tokens[t].to, f.count, f.depth), out);
  for (std::uint32_t c = state.calls; c < next.calls; ++c)
    if (const std::int32_t callee = enter(top, machine_->calls[c]); callee != kBottom) step_token(callee, token, out);
  if (state.accepts && f.below != kBottom) step_token(f.below, token, out);
}

void Stacks::tokens_at(std::int32_t top, std::vector<std::int32_t>& out) {
  const Frame f = frame(top);
  const Machine::State& state = machine_->states[static_cast<std::size_t>(f.state)];
  const Machine::State& next = machine_->states[static_cast<std::size_t>(f.state) + 1];
  for (std::uint32_t t = state.tokens; t < next.tokens; ++t)
    if (enterable(machine_->tokens[t].to, room(f))) out.push_back(machine_->tokens[t].id);
  for (std::uint32_t c = state.calls; c < next.calls; ++c)
    if (const std::int32_t callee = enter(top, machine_->calls[c]); callee != kBottom) tokens_at(callee, out);
  if (state.accepts && f.below != kBottom) tokens_at(f.below, out);
}

bool Stacks::may_end(std::int32_t top) const {
  for (; top != kBottom; top = frame(top).below)
    if (!state_of(top).accepts) return false;
  return true;
}

void Stacks::compact(std::vector<std::int32_t>& tops) {
  std::vector<Frame> kept;
  for (std::int32_t& top : tops) {
    std::vector<std::int32_t> chain;
    for (std::int32_t at = top; at != kBottom; at = frame(at).below) chain.push_back(at);
    std::int32_t below = kBottom;
    for (auto it = chain.rbegin(); it != chain.rend(); ++it) {
      Frame f = frame(*it);
      f.below = below;
      kept.push_back(f);
      below = static_cast<std::int32_t>(kept.size()) - 1;
    }
    top = below;
  }
  frames_ = std::move(kept);
}

}  // namespace lockstep
