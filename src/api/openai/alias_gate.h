// The gate of an alias: new deployments are compared with the live one before the alias leads to them; if one fails, the alias stays. Any thread; one
// gate at a time, others are refused meanwhile.
//   JudgedTraffic judged = gate.judge("chat", shares, read_gate(json, "gate"), key);
//   const std::lock_guard lock(gate.changes());   gate.check_same(judged);   deployments->route("chat", shares);   gate.moved(judged);
#pragma once
#include <functional>
#include <memory>
#include <mutex>

#include "api/json_fields.h"
#include "base/stop_token.h"
#include "serving/deployments.h"
#include "serving/gate.h"
#include "serving/gate_reports.h"

namespace lockstep {

// Of a request's "gate". Errors: RequestError with the field at fault.
GateSpec read_gate(const Json& value, const std::string& name);

struct JudgedTraffic {
  std::string alias, key_name;
  std::optional<TrafficRule> before;  // the alias' rule when it was judged
  struct One {
    std::string name;
    std::shared_ptr<GenerationService> service;
    std::uint64_t version = 0;  // of its weights
  };
  std::vector<One> deployments;  // those that passed, or that failed and are forced
  Json reports = Json::array();
};

class AliasGate {
 public:
  // Without `live` the alias has no live version to compare with.
  using Judge = std::function<GateReport(const GateSpec& spec, const GateSide& candidate, const std::optional<GateSide>& live, const StopToken& stop)>;
  // `reports`: null: in memory. `stop` ends gates of requests.
  AliasGate(std::shared_ptr<Deployments> deployments, Judge judge, std::shared_ptr<GateReports> reports = nullptr, StopToken stop = {});

  // Judges the deployments of `shares` that the alias does not lead to yet, and keeps the reports. With `force` a failure is no error.
  // Errors: RequestError 409 with the code gate_failed and the reason; resource_exhausted while another gate runs; those of the judge.
  JudgedTraffic judge(const std::string& alias, const std::vector<TrafficShare>& shares, const GateSpec& spec, const std::string& key_name, bool force = false);
  // Error already_exists: the alias' rule, one of the deployments or its weights have changed since judge().
  void check_same(const JudgedTraffic& judged) const;
  // Call when the alias has been moved: marks the reports of deployments that failed as forced, the kept ones and those in `judged`.
  void moved(JudgedTraffic& judged) const;

  // Judges a version that is in no deployment yet against the alias' live one, and keeps and returns the report. Waits until other gates have
  // ended. Errors: those of the judge.
  Json report_of(const std::string& alias, const GateSpec& spec, const GateSide& candidate, const StopToken& stop);

  // To be held while aliases change, and while a version that passed a gate goes live.
  std::mutex& changes() { return changes_; }
  GateReports& reports() const { return *reports_; }
  const std::shared_ptr<Deployments>& deployments() const { return deployments_; }

 private:
  // The deployment with the greatest share; none if the rule leads to none.
  std::optional<GateSide> live_of(const std::optional<TrafficRule>& rule) const;
  // The deployment as one side of a comparison, under its present weights. Waits until a sleeping one is awake.
  GateSide side_of(const DeploymentLine& line) const;
  Json ask(const std::string& alias, const GateSpec& spec, const GateSide& candidate, const std::optional<GateSide>& live, const std::string& key_name,
           const StopToken& stop) const;

  const std::shared_ptr<Deployments> deployments_;
  const Judge judge_;
  const std::shared_ptr<GateReports> reports_;
  const StopToken stop_;
  std::mutex one_, changes_;
};

// Why a report's gate failed, and where its figures are.
std::string gate_reason(const Json& report);

}  // namespace lockstep
