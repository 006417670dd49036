#include "api/openai/alias_gate.h"

#include <algorithm>
#include <chrono>

#include "api/errors.h"
#include "base/log.h"
#include "base/server_paths.h"
#include "serving/plain_name.h"

namespace lockstep {
namespace {
double gate_number(const Json& value, const std::string& name, double low, double high) {
  if (!value.is_number() || !(value.get<double>() >= low && value.get<double>() <= high))
    fail_field(name, fmt::format("is {}, allowed is a number from {} to {}", describe_json(value), low, high));
  return value.get<double>();
}

std::string gate_text(const Json& value, const std::string& name) {
  std::string text = json_text(value, name);
  if (text.empty() || text.size() > GateSpec::kMostTextBytes)
    fail_field(name, fmt::format("has {} bytes, allowed are 1 to {}", text.size(), GateSpec::kMostTextBytes));
  return text;
}

// Each element of a list of at most `most`, with its name.
void each_of(const Json& list, const std::string& name, std::int64_t most, const std::function<void(const Json&, const std::string&)>& read) {
  if (!list.is_array() || list.empty() || list.size() > static_cast<std::size_t>(most))
    fail_field(name, fmt::format("is {}, allowed is a list of 1 to {}", describe_json(list), most));
  std::size_t index = 0;
  for (const Json& one : list) read(one, fmt::format("{}[{}]", name, index++));
}

std::optional<DeploymentLine> line_of(const Deployments& deployments, const std::string& name) {
  for (DeploymentLine& one : deployments.list())
    if (one.name == name) return std::move(one);
  return std::nullopt;
}

bool leads_to(const std::optional<TrafficRule>& rule, const std::string& deployment) {
  return rule && std::any_of(rule->shares.begin(), rule->shares.end(), [&](const TrafficShare& one) { return one.deployment == deployment && one.weight > 0; });
}
}  // namespace

GateSpec read_gate(const Json& value, const std::string& name) {
  require_object(value, name);
  GateSpec spec;
  JsonFields fields;
  fields.custom("questions", [&](const Json& list, const std::string& at) {
    each_of(list, at, GateSpec::kMostQuestions, [&](const Json& one, const std::string& where) {
      require_object(one, where);
      GateQuestion question;
      JsonFields parts;
      parts.custom("prompt", [&](const Json& text, const std::string& part) { question.prompt = gate_text(text, part); });
      parts.custom("answer", [&](const Json& text, const std::string& part) { question.answer = gate_text(text, part); });
      parts.read(one, where + ".");
      if (question.prompt.empty()) fail_field(where + ".prompt", "is missing");
      if (question.answer.empty()) fail_field(where + ".answer", "is missing");
      spec.questions.push_back(std::move(question));
    });
  });
  fields.text("environment", &spec.environment);
  fields.integer("problems", &spec.problems, 1, GateSpec::kMostQuestions);
  fields.not_null();
  fields.integer("max_tokens", &spec.max_tokens, 1, GateSpec::kMostTokens);
  fields.not_null();
  fields.custom("accuracy_drop", [&](const Json& number, const std::string& at) { spec.accuracy_drop = gate_number(number, at, 0, 1); });
  fields.not_null();
  fields.custom("accuracy_floor", [&](const Json& number, const std::string& at) { spec.accuracy_floor = gate_number(number, at, 0, 1); });
  fields.not_null();
  fields.custom("texts", [&](const Json& list, const std::string& at) {
    each_of(list, at, GateSpec::kMostTexts, [&](const Json& one, const std::string& where) { spec.texts.push_back(gate_text(one, where)); });
  });
  fields.custom("logprob_drop", [&](const Json& number, const std::string& at) { spec.logprob_drop = gate_number(number, at, 0, 1000); });
  fields.not_null();
  fields.custom("kl_limit", [&](const Json& number, const std::string& at) { spec.kl_limit = gate_number(number, at, 0, 1000); });
  fields.not_null();
  fields.custom("speed_drop", [&](const Json& number, const std::string& at) { spec.speed_drop = gate_number(number, at, 0, 1); });
  fields.not_null();
  fields.boolean("digests", &spec.digests);
  fields.integer("company", &spec.company, 0, GateSpec::kMostCompany);
  fields.not_null();
  fields.read(value, name + ".");
  if (!spec.questions.empty() && !spec.environment.empty()) fail_field(name + ".environment", "is refused beside questions, which have their answers");
  if (!spec.asks() && spec.texts.empty()) fail_field(name, "asks nothing, allowed are questions or an environment, and texts");
  const auto of_answers = [&](const char* field, bool given) {
    if (!spec.asks() && given) fail_field(fmt::format("{}.{}", name, field), "is refused without questions or an environment");
  };
  of_answers("accuracy_floor", spec.accuracy_floor.has_value());
  of_answers("kl_limit", spec.kl_limit.has_value());
  of_answers("speed_drop", spec.speed_drop.has_value());
  return spec;
}

AliasGate::AliasGate(std::shared_ptr<Deployments> deployments, Judge judge, std::shared_ptr<GateReports> reports, StopToken stop)
    : deployments_(std::move(deployments)),
      judge_(std::move(judge)),
      reports_(reports ? std::move(reports) : std::make_shared<GateReports>()),
      stop_(std::move(stop)) {}

GateSide AliasGate::side_of(const DeploymentLine& line) const {
  std::shared_ptr<GenerationService> service = line.service ? line.service : deployments_->awake(line.name);
  return {line.name, std::move(service), line.snapshot};
}

std::optional<GateSide> AliasGate::live_of(const std::optional<TrafficRule>& rule) const {
  const TrafficShare* most = nullptr;
  if (rule)
    for (const TrafficShare& share : rule->shares)
      if (share.weight > (most ? most->weight : 0)) most = &share;
  const std::optional<DeploymentLine> line = most ? line_of(*deployments_, most->deployment) : std::nullopt;
  return line ? std::optional(side_of(*line)) : std::nullopt;
}

Json AliasGate::ask(const std::string& alias, const GateSpec& spec, const GateSide& candidate, const std::optional<GateSide>& live, const std::string& key_name,
                    const StopToken& stop) const {
  Json report{{"alias", alias}, {"created", std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count()}};
  report.update(to_json(judge_(spec, candidate, live, stop)));
  const std::string id = reports_->add(report);
  report["id"] = id;
  log_info("a gate has ended", {{"gate", id}, {"alias", alias}, {"deployment", candidate.name}, {"passed", report["passed"].get<bool>()}, {"key", key_name}});
  return report;
}

Json AliasGate::report_of(const std::string& alias, const GateSpec& spec, const GateSide& candidate, const StopToken& stop) {
  const std::lock_guard one(one_);
  return ask(alias, spec, candidate, live_of(deployments_->traffic().find(alias)), {}, stop);
}

JudgedTraffic AliasGate::judge(const std::string& alias, const std::vector<TrafficShare>& shares, const GateSpec& spec, const std::string& key_name,
                               bool force) {
  check_plain_name("an alias", alias);
  const std::unique_lock one(one_, std::try_to_lock);
  if (!one) fail(ErrorCode::resource_exhausted, "another gate runs on this server, one at a time; ask again when it has ended");
  JudgedTraffic judged{.alias = alias, .key_name = key_name};
  judged.before = deployments_->traffic().find(alias);
  const std::optional<GateSide> live = live_of(judged.before);
  std::string why;
  for (const TrafficShare& share : shares) {
    if (share.weight == 0 || leads_to(judged.before, share.deployment)) continue;
    const std::optional<DeploymentLine> line = line_of(*deployments_, share.deployment);
    if (!line) fail(ErrorCode::not_found, "the traffic of '{}' names '{}', which is no deployment", alias, shown_name(share.deployment));
    const GateSide candidate = side_of(*line);
    judged.deployments.push_back({line->name, candidate.service, candidate.service->weights().version()});
    Json report = ask(alias, spec, candidate, live, key_name, stop_);
    if (!report["passed"].get<bool>() && !force) why += fmt::format("{}{}", why.empty() ? "" : "; ", gate_reason(report));
    judged.reports.push_back(std::move(report));
  }
  if (!why.empty()) throw RequestError(ErrorCode::already_exists, "gate", fmt::format("'{}' stays as it is: {}", alias, why), 409, "gate_failed");
  return judged;
}

void AliasGate::check_same(const JudgedTraffic& judged) const {
  const std::optional<TrafficRule> now = deployments_->traffic().find(judged.alias);
  const bool same_rule = now.has_value() == judged.before.has_value() && (!now || now->shares == judged.before->shares);
  if (!same_rule) fail(ErrorCode::already_exists, "'{}' was changed while its gate ran; it stays as it is now", judged.alias);
  for (const JudgedTraffic::One& one : judged.deployments) {
    const std::optional<DeploymentLine> line = line_of(*deployments_, one.name);
    if (!line || line->service != one.service)
      fail(ErrorCode::already_exists, "'{}' was deleted while the gate of '{}' ran, which stays as it is", one.name, judged.alias);
    if (line->service->weights().version() != one.version)
      fail(ErrorCode::already_exists, "'{}' went over to another snapshot of its channel while the gate of '{}' ran, which stays as it is", one.name,
           judged.alias);
  }
}

void AliasGate::moved(JudgedTraffic& judged) const {
  for (Json& report : judged.reports) {
    if (report["passed"].get<bool>()) continue;
    report["forced"] = true;
    const std::string id = report["id"].get<std::string>();
    reports_->overruled(id);
    log_warning("a gate failed, and its alias was moved all the same", {{"gate", id},
                                                                        {"alias", judged.alias},
                                                                        {"deployment", report["deployment"].get<std::string>()},
                                                                        {"reason", report["reason"].get<std::string>()},
                                                                        {"key", judged.key_name}});
  }
}

std::string gate_reason(const Json& report) {
  return fmt::format("{} (GET /v1/gates/{} has the figures)", without_server_paths(report.at("reason").get<std::string>()), report.at("id").get<std::string>());
}

}  // namespace lockstep
