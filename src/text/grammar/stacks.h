// The stacks of a machine: the open rules at a position of a text.
//   Stacks stacks(machine); std::vector<std::int32_t> tops{stacks.push(Stacks::kBottom, machine.start, 0, 0)}; stacks.step(tops, 'x', next);
// Frames are nodes of a tree, so that stacks share their lower parts; there are several stacks where a text is still ambiguous. Knows no tokens.
// Used by one thread at a time.
#pragma once
#include <span>

#include "text/grammar/machine.h"

namespace lockstep {

class Stacks {
 public:
  static constexpr std::int32_t kBottom = -1;
  // The most stacks that are followed at a time; more are dropped, which is safe since each can still reach an end.
  static constexpr std::size_t kMaxStacks = 256;
  struct Frame {
    std::int32_t below, state;
    std::int32_t depth;  // containers open, this one included
    std::int64_t count;
  };

  explicit Stacks(const Machine& machine) : machine_(&machine) {}
  std::int32_t push(std::int32_t below, std::int32_t state, std::int64_t count, std::int32_t depth) {
    frames_.push_back({below, state, depth, count});
    return static_cast<std::int32_t>(frames_.size()) - 1;
  }
  const Frame& frame(std::int32_t at) const { return frames_[static_cast<std::size_t>(at)]; }
  std::size_t size() const { return frames_.size(); }
  void truncate(std::size_t size) { frames_.resize(size); }
  const Machine& machine() const { return *machine_; }
  const Machine::State& state_of(std::int32_t at) const { return machine_->states[static_cast<std::size_t>(frame(at).state)]; }

  // All ways over one byte from a stack; adds the resulting tops to `out`. A way that would leave the bottom frame is not followed:
  // may_end tells where that is possible.
  void step(std::int32_t top, std::uint8_t byte, std::vector<std::int32_t>& out);
  // One byte within the frame's own rule, without calls and ends.
  bool may_step(const Frame& f, std::uint8_t byte) const {
    const Machine::Step& s = machine_->step(f.state, byte);
    if (s.to < 0 || !enterable(s.to, room(f))) return false;
    if ((s.guards & (Machine::kNeedsMinimum | Machine::kBelowMaximum)) == 0) return true;
    const Machine::Rule& rule = machine_->rules[static_cast<std::size_t>(machine_->states[static_cast<std::size_t>(f.state)].rule)];
    return !((s.guards & Machine::kNeedsMinimum) && f.count < rule.minimum) && !((s.guards & Machine::kBelowMaximum) && f.count >= rule.maximum);
  }
  std::int32_t over(const Frame& f, std::uint8_t byte) {
    const Machine::Step& s = machine_->step(f.state, byte);
    return push(f.below, s.to, f.count + ((s.guards & Machine::kCounts) != 0), f.depth);
  }
  // The same over a token that stands for itself.
  void step_token(std::int32_t top, std::int32_t token, std::vector<std::int32_t>& out);
  // Tokens that may stand for themselves here.
  void tokens_at(std::int32_t top, std::vector<std::int32_t>& out);
  // Whether everything that is open may end.
  bool may_end(std::int32_t top) const;
  // Frees all frames that none of these stacks uses.
  void compact(std::vector<std::int32_t>& tops);

 private:
  bool same(std::int32_t a, std::int32_t b) const;
  void add(std::int32_t top, std::vector<std::int32_t>& out) const;
  int room(const Frame& f) const { return machine_->depth - f.depth; }
  bool enterable(std::int32_t state, int depth_left) const { return machine_->states[static_cast<std::size_t>(state)].height <= depth_left; }
  // The caller's and the callee's frame of a call from `top`, or kBottom where the depth left forbids it.
  std::int32_t enter(std::int32_t top, const Machine::Call& call);

  const Machine* machine_;
  std::vector<Frame> frames_;
};

}  // namespace lockstep
