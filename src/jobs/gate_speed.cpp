#include "jobs/gate_speed.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/median.h"
#include "base/seconds.h"

namespace lockstep {
namespace {
constexpr std::int64_t kSpeedPrompts = 8, kSpeedTokens = 64;
constexpr int kSpeedRounds = 3;

// Of one side: a rate a round.
class SpeedOfSide {
 public:
  SpeedOfSide(const GateSpec& spec, const Environment& environment, const GateSide& side, const StopToken& stop)
      : name_(side.name), sampler_(gate_sampler(side, stop)), requests_(gate_requests(spec, environment, side, std::min(kSpeedPrompts, spec.prompts()))) {
    for (SampleRequest& request : requests_) {
      request.stop_tokens.clear();  // an end token is one like others
      request.max_tokens = static_cast<std::int32_t>(std::min(kSpeedTokens, spec.max_tokens));
    }
  }
  void round() {
    const auto begin = std::chrono::steady_clock::now();
    tokens_ = 0;
    for (const SampleResult& result : sampler_.sample(requests_)) {
      if (result.finish == SampleFinish::failed) fail(ErrorCode::numeric, "an answer of '{}' failed: {}", name_, result.error);
      tokens_ += static_cast<std::int64_t>(result.tokens.size());
    }
    rates_.push_back(static_cast<double>(tokens_) / std::max(seconds_since(begin), 1e-9));
  }
  std::size_t prompts() const { return requests_.size(); }
  std::int64_t tokens() const { return tokens_; }
  const std::vector<double>& rates() const { return rates_; }
  double median() const { return lockstep::median(rates_); }

 private:
  const std::string name_;
  LocalSampler sampler_;
  std::vector<SampleRequest> requests_;
  std::int64_t tokens_ = 0;  // of a round
  std::vector<double> rates_;
};
}  // namespace

void check_speed(const GateSpec& spec, const Environment& environment, const GateSide& candidate, const std::optional<GateSide>& live, const StopToken& stop,
                 GateCheck& check) {
  SpeedOfSide now(spec, environment, candidate, stop);
  std::optional<SpeedOfSide> before;
  if (live) before.emplace(spec, environment, *live, stop);
  for (int round = 0; round < kSpeedRounds; ++round) {
    const bool live_first = round % 2 == 0;
    if (before && live_first) before->round();
    now.round();
    if (before && !live_first) before->round();
  }
  check.figures = {{"prompts", now.prompts()}, {"tokens", now.tokens()}, {"tokens_per_second", now.median()}, {"rounds", now.rates()}};
  if (!before) return;
  check.figures["live_tokens_per_second"] = before->median();
  check.figures["live_rounds"] = before->rates();
  if (!spec.speed_drop) return;
  check.figures["speed_drop"] = *spec.speed_drop;
  if (!(now.median() >= before->median() * (1 - *spec.speed_drop)))
    check.why = fmt::format("'{}' makes {:.1f} tokens a second and '{}', which is live, {:.1f}: {:.4f} of its speed, allowed is a loss of {}", candidate.name,
                            now.median(), live->name, before->median(), now.median() / before->median(), *spec.speed_drop);
}

}  // namespace lockstep
