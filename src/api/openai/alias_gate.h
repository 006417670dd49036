// The gate before an alias: deployments that it would lead to and does not yet are judged against the one that is live, and where one fails the alias stays.
//   const JudgedTraffic judged = gate.judge("chat", shares, read_gate(json, "gate"), key);   gate.check_same(judged);   deployments->route("chat", shares);
// Any thread; one gate at a time, and others are refused meanwhile.
#pragma once
#include <functional>
#include <memory>
#include <mutex>

#include "api/json_fields.h"
#include "serving/deployments.h"
#include "serving/gate.h"
#include "serving/gate_reports.h"

namespace lockstep {

// Of a request's "gate". Errors: RequestError with the field at fault.
GateSpec read_gate(const Json& value, const std::string& name);

struct JudgedTraffic {
  std::string alias;
  std::optional<TrafficRule> before;                         // the alias' own, when it was judged
  std::vector<std::shared_ptr<GenerationService>> services;  // that passed, or were forced
  std::vector<std::string> names;                            // theirs
  Json reports = Json::array();
};

class AliasGate {
 public:
  // Null: there is no live one.
  using Judge = std::function<GateReport(const GateSpec& spec, const Deployments::Line& candidate, const Deployments::Line* live)>;
  AliasGate(std::shared_ptr<Deployments> deployments, Judge judge, std::shared_ptr<GateReports> reports)
      : deployments_(std::move(deployments)), judge_(std::move(judge)), reports_(std::move(reports)) {}

  // The reports are kept. With `force` one that failed stands in nobody's way, and says so. Errors: RequestError 409 with the code gate_failed and the reason,
  // 429 while another gate runs; those of the judge.
  JudgedTraffic judge(const std::string& alias, const std::vector<TrafficShare>& shares, const GateSpec& spec, const std::string& key_name, bool force = false);
  // Error already_exists: the alias, or one of the deployments, is another by now.
  void check_same(const JudgedTraffic& judged) const;

 private:
  const std::shared_ptr<Deployments> deployments_;
  const Judge judge_;
  const std::shared_ptr<GateReports> reports_;
  std::mutex one_;
};

}  // namespace lockstep
