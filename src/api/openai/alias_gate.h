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
  std::optional<TrafficRule> before;  // the alias' own, when it was judged
  struct One {
    std::string name;
    std::shared_ptr<GenerationService> service;
    std::uint64_t version = 0;  // of its weights
  };
  std::vector<One> deployments;  // that passed, or failed and are to be forced
  Json reports = Json::array();
};

class AliasGate {
 public:
  // No `live`: there is none.
  using Judge = std::function<GateReport(const GateSpec& spec, const GateSide& candidate, const std::optional<GateSide>& live, const StopToken& stop)>;
  // `reports`: null: in memory. `stop` ends gates of requests.
  AliasGate(std::shared_ptr<Deployments> deployments, Judge judge, std::shared_ptr<GateReports> reports = nullptr, StopToken stop = {});

  // The reports are kept. With `force` one that failed stands in nobody's way. Errors: RequestError 409 with the code gate_failed and the reason,
  // 429 while another gate runs; those of the judge.
  JudgedTraffic judge(const std::string& alias, const std::vector<TrafficShare>& shares, const GateSpec& spec, const std::string& key_name, bool force = false);
  // Error already_exists: the alias, or one of the deployments or of their weights, is another by now.
  void check_same(const JudgedTraffic& judged) const;
  // The alias leads to them: the reports of those that failed, kept and in `judged`, say that they were forced.
  void moved(JudgedTraffic& judged) const;

  // Of a version that is no deployment's yet, against the alias' live one, once other gates have ended. The report is kept. Errors: those of the judge.
  Json report_of(const std::string& alias, const GateSpec& spec, const GateSide& candidate, const StopToken& stop);

  // Held while aliases change, and while a version goes live that an alias' gate let through.
  std::mutex& changes() { return changes_; }
  GateReports& reports() const { return *reports_; }
  const std::shared_ptr<Deployments>& deployments() const { return deployments_; }

 private:
  // The deployment with the greatest share; none, where it leads nowhere.
  std::optional<GateSide> live_of(const std::optional<TrafficRule>& rule) const;
  // As the gate asks a deployment, under the weights that it has. One that sleeps is waited for.
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
