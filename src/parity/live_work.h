// Live requests in the middle of a training step, for parity: at random moments, between kernels and between the parts of long ones
// (kernels/kernel_parts.h), an engine on the same device answers a request, which must have the bits it has alone. One thread.
//   LiveWork live(runtime, trainer.weights(), request, draws); { const LiveWork::Within within(runtime, live); trainer.forward_backward(...); }
#pragma once
#include <bit>

#include "base/give_way.h"
#include "base/give_way_everywhere.h"
#include "base/philox.h"
#include "engine/engine.h"

namespace lockstep {

class LiveWork {
 public:
  LiveWork(Runtime& runtime, std::shared_ptr<const WeightSet> weights, Request request, RandomSequence draws)
      : engine_(runtime, std::move(weights), {.cache_pages = 8, .prefix_cache = false}), request_(std::move(request)), draws_(draws), alone_(bits()) {}
  std::int64_t times() const { return times_; }
  std::int64_t other_bits() const { return other_bits_; }  // answers that differ

  // While it lives, this thread and the runtime's device give way as often as possible.
  class Within final : public PausePoint {
   public:
    Within(Runtime& runtime, LiveWork& work) : runtime_(runtime), work_(work) {
      runtime_.backend.set_pause_point({std::shared_ptr<void>(), this});  // not its own
      thread_pause_point = this;
    }
    ~Within() override {
      thread_pause_point = nullptr;
      runtime_.backend.set_pause_point(nullptr);
    }
    void pause() override {
      if (!std::exchange(busy_, true)) work_.maybe(), busy_ = false;
    }
    std::int64_t longest_kernel() const override { return 1; }

   private:
    Runtime& runtime_;
    LiveWork& work_;
    bool busy_ = false;
  };

 private:
  static constexpr std::uint32_t kEvery = 100;  // moments, of thousands a step
  void maybe() {
    if (draws_.below(gives_way_everywhere() ? 1 : kEvery) != 0) return;
    ++times_;
    other_bits_ += bits() != alone_;
  }
  std::vector<std::uint32_t> bits() {
    std::vector<std::uint32_t> out;
    const auto answers = engine_.generate({request_});
    for (const GeneratedToken& token : answers.front().tokens)
      out.push_back(static_cast<std::uint32_t>(token.id)), out.push_back(std::bit_cast<std::uint32_t>(token.sampling_logprob));
    return out;
  }

  Engine engine_;
  const Request request_;
  RandomSequence draws_;
  const std::vector<std::uint32_t> alone_;
  std::int64_t times_ = 0, other_bits_ = 0;
};

}  // namespace lockstep
