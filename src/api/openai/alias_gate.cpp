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

std::optional<Deployments::Line> line_of(const std::vector<Deployments::Line>& lines, const std::string& name) {
  for (const Deployments::Line& one : lines)
    if (one.name == name) return one;
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

JudgedTraffic AliasGate::judge(const std::string& alias, const std::vector<TrafficShare>& shares, const GateSpec& spec, const std::string& key_name,
                               bool force) {
  check_plain_name("an alias", alias);
  if (!judge_) fail(ErrorCode::unsupported, "this server has no gate");
  const std::unique_lock one(one_, std::try_to_lock);
  if (!one) fail(ErrorCode::resource_exhausted, "another gate runs on this server, one at a time; ask again when it has ended");
  const std::vector<Deployments::Line> lines = deployments_->list();
  JudgedTraffic judged;
  judged.alias = alias;
  judged.before = deployments_->traffic().find(alias);
  std::optional<Deployments::Line> live;
  std::int64_t most = 0;
  if (judged.before)
    for (const TrafficShare& share : judged.before->shares)
      if (share.weight > most) live = line_of(lines, share.deployment), most = share.weight;
  std::string why;
  for (const TrafficShare& share : shares) {
    if (share.weight == 0 || leads_to(judged.before, share.deployment)) continue;
    const std::optional<Deployments::Line> candidate = line_of(lines, share.deployment);
    if (!candidate) fail(ErrorCode::not_found, "the traffic of '{}' names '{}', which is no deployment", alias, shown_name(share.deployment));
    Json report{{"alias", alias}, {"created", std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count()}};
    GateReport found = judge_(spec, *candidate, live ? &*live : nullptr);
    found.forced = force && !found.passed();
    report.update(to_json(found));
    const std::string id = reports_->add(report);
    log_info("a gate has ended", {{"gate", id}, {"alias", alias}, {"deployment", candidate->name}, {"passed", found.passed()}, {"key", key_name}});
    if (found.forced)
      log_warning("a gate failed, and its alias was told to move all the same",
                  {{"gate", id}, {"alias", alias}, {"deployment", candidate->name}, {"reason", found.reason()}, {"key", key_name}});
    else if (!found.passed()) why += fmt::format("{}{} (GET /v1/gates/{} has the figures)", why.empty() ? "" : "; ", without_server_paths(found.reason()), id);
    report["id"] = id;
    judged.reports.push_back(std::move(report));
    judged.services.push_back(candidate->service);
    judged.names.push_back(candidate->name);
  }
  if (!why.empty()) throw RequestError(ErrorCode::already_exists, "gate", fmt::format("'{}' stays as it is: {}", alias, why), 409, "gate_failed");
  return judged;
}

void AliasGate::check_same(const JudgedTraffic& judged) const {
  const std::optional<TrafficRule> now = deployments_->traffic().find(judged.alias);
  const bool same_rule = now.has_value() == judged.before.has_value() && (!now || now->shares == judged.before->shares);
  if (!same_rule) fail(ErrorCode::already_exists, "'{}' was changed while its gate ran; it stays as it is now", judged.alias);
  const std::vector<Deployments::Line> lines = deployments_->list();
  for (std::size_t i = 0; i < judged.names.size(); ++i) {
    const std::optional<Deployments::Line> line = line_of(lines, judged.names[i]);
    if (!line || line->service != judged.services[i])
      fail(ErrorCode::already_exists, "'{}' was deleted while the gate of '{}' ran, which stays as it is", judged.names[i], judged.alias);
  }
}

}  // namespace lockstep
