#include "api/openai/channel_gate.h"

#include <algorithm>

#include "base/bounded_json.h"
#include "base/error.h"

namespace lockstep {
namespace {
constexpr std::size_t kShortId = 12;

std::vector<TrafficRule> gates_of(const Deployments& deployments, const std::string& deployment) {
  std::vector<TrafficRule> rules = deployments.traffic().list();
  std::erase_if(rules, [&](const TrafficRule& rule) { return !rule.gate || !rule.may_lead_to(deployment); });
  return rules;
}

class ChannelGate : public VersionGate {
 public:
  ChannelGate(std::shared_ptr<AliasGate> gate, std::string deployment) : gate_(std::move(gate)), deployment_(std::move(deployment)) {}

  std::string terms() const override {
    std::string terms;
    for (const TrafficRule& rule : gates_of(*gate_->deployments(), deployment_)) terms += fmt::format("{}:{};", rule.alias, rule.gate_number);
    return terms;
  }
  std::string refuses(const std::string& snapshot, std::shared_ptr<const WeightSet> weights, std::shared_ptr<const AdapterWeights> adapter,
                      const StopToken& stop) override {
    const std::vector<DeploymentLine> lines = gate_->deployments()->list();
    const auto line = std::find_if(lines.begin(), lines.end(), [&](const DeploymentLine& one) { return one.name == deployment_; });
    if (line == lines.end()) fail(ErrorCode::internal, "'{}' follows a channel, and is no deployment", deployment_);
    const GateSide candidate{fmt::format("{}@{}", deployment_, snapshot.substr(0, kShortId)), line->service, snapshot, std::move(weights), std::move(adapter)};
    for (const TrafficRule& rule : gates_of(*gate_->deployments(), deployment_)) {
      const Json report = gate_->report_of(rule.alias, read_gate(read_json(*rule.gate), "gate"), candidate, stop);
      if (!report.at("passed").get<bool>())
        return fmt::format("'{}' keeps the weights that it has, for the gate of '{}': {}", deployment_, rule.alias, gate_reason(report));
    }
    return {};
  }
  bool go_live(const std::string& terms, const std::function<void()>& swap) override {
    const std::lock_guard lock(gate_->changes());
    if (this->terms() != terms) return false;
    swap();
    return true;
  }

 private:
  const std::shared_ptr<AliasGate> gate_;
  const std::string deployment_;
};
}  // namespace

std::shared_ptr<VersionGate> channel_gate(std::shared_ptr<AliasGate> gate, std::string deployment) {
  return std::make_shared<ChannelGate>(std::move(gate), std::move(deployment));
}

std::shared_ptr<const std::string> gate_to_keep(const Deployments& deployments, const TrafficRule& rule, const Json& gate) {
  bool needed = false;
  for (const DeploymentLine& line : deployments.list()) {
    if (line.follows == Follows::no || !rule.may_lead_to(line.name)) continue;
    needed = true;
    const auto unsupported = [&](const char* why) {
      fail(ErrorCode::unsupported, "'{}' cannot have a gate and lead to '{}', which follows a channel: {}", rule.alias, line.name, why);
    };
    if (line.follows == Follows::in_place) unsupported("--swap-memory single writes over the live weights, so that nothing can ask the new ones before");
  }
  return needed ? std::make_shared<const std::string>(gate.dump(-1, ' ', false, Json::error_handler_t::replace)) : nullptr;
}

}  // namespace lockstep
