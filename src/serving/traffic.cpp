#include "serving/traffic.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/entropy.h"
#include "base/error.h"
#include "base/hash.h"
#include "serving/plain_name.h"

namespace lockstep {
namespace {
std::vector<std::string> aliases_of(const std::map<std::string, TrafficRule, std::less<>>& rules) {
  std::vector<std::string> names;
  for (const auto& [name, rule] : rules) names.push_back(name);
  return names;
}

void check_shares(const std::string& alias, const std::vector<TrafficShare>& shares) {
  const std::string whose = fmt::format("the traffic of '{}'", alias);
  if (shares.empty() || shares.size() > TrafficTable::kMostShares)
    fail(ErrorCode::invalid_argument, "{} has {} deployments, allowed are 1 to {}", whose, shares.size(), TrafficTable::kMostShares);
  bool any = false;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const TrafficShare& one = shares[i];
    check_plain_name(fmt::format("a deployment in {}", whose), one.deployment);
    if (one.weight < 0 || one.weight > TrafficTable::kMostWeight)
      fail(ErrorCode::invalid_argument, "{}: the weight of '{}' is {}, allowed is 0 to {}", whose, one.deployment, one.weight, TrafficTable::kMostWeight);
    any = any || one.weight > 0;
    for (std::size_t j = 0; j < i; ++j)
      if (shares[j].deployment == one.deployment) fail(ErrorCode::invalid_argument, "{} names '{}' twice", whose, one.deployment);
  }
  if (!any) fail(ErrorCode::invalid_argument, "{} has weights of 0 alone, allowed is at least one above", whose);
}

bool has_share(const std::vector<TrafficShare>& shares, const std::string& deployment) {
  return std::any_of(shares.begin(), shares.end(), [&](const TrafficShare& one) { return one.deployment == deployment; });
}

// Above 0 and below 1, from two names.
double drawn(std::string_view who, const std::string& deployment) {
  const std::string hex = sha256_hex(fmt::format("{}\n{}", deployment, who)).substr(0, 13);
  return (static_cast<double>(std::stoull(hex, nullptr, 16)) + 0.5) / static_cast<double>(std::uint64_t{1} << 52);
}
}  // namespace

bool TrafficRule::may_lead_to(const std::string& deployment) const {
  const auto leads = [&](const TrafficShare& one) { return one.deployment == deployment && one.weight > 0; };
  return std::any_of(shares.begin(), shares.end(), leads) || std::any_of(before.begin(), before.end(), leads);
}

std::map<std::string, TrafficRule, std::less<>>::iterator TrafficTable::at(const std::string& alias) {
  const auto found = rules_.find(alias);
  if (found == rules_.end()) {
    const std::string shown = shown_name(alias);
    fail(ErrorCode::not_found, "there is no alias '{}'{}", shown, did_you_mean(shown, aliases_of(rules_)));
  }
  return found;
}

void TrafficTable::set(const std::string& alias, std::vector<TrafficShare> shares) {
  check_plain_name("an alias", alias);
  check_shares(alias, shares);
  const std::lock_guard lock(mutex_);
  const auto found = rules_.find(alias);
  if (found == rules_.end()) {
    if (rules_.size() >= kMostAliases) fail(ErrorCode::resource_exhausted, "there are {} aliases, allowed are {}; remove some", rules_.size(), kMostAliases);
    rules_[alias] = {alias, std::move(shares), {}};
  } else if (found->second.shares != shares) {
    found->second.before = std::exchange(found->second.shares, std::move(shares));
  }
}

TrafficRule TrafficTable::roll_back(const std::string& alias) {
  const std::lock_guard lock(mutex_);
  TrafficRule& rule = at(alias)->second;
  if (rule.before.empty())
    fail(ErrorCode::unsupported, "'{}' has had no other deployments than {}, or those before are gone: there is nothing to go back to", alias,
         shares_text(rule.shares));
  std::swap(rule.shares, rule.before);
  return rule;
}

void TrafficTable::set_gate(const std::string& alias, std::shared_ptr<const std::string> gate) {
  const std::lock_guard lock(mutex_);
  TrafficRule& rule = at(alias)->second;
  if (!rule.gate && !gate) return;
  rule.gate = std::move(gate);
  rule.gate_number = ++gates_set_;
}

void TrafficTable::remove(const std::string& alias) {
  const std::lock_guard lock(mutex_);
  rules_.erase(at(alias));
}

void TrafficTable::forget(const std::string& deployment) {
  const std::lock_guard lock(mutex_);
  for (const auto& [alias, rule] : rules_)
    if (has_share(rule.shares, deployment))
      fail(ErrorCode::already_exists, "the alias '{}' has a share of '{}': {}; give it to another first", alias, deployment, shares_text(rule.shares));
  for (auto& [alias, rule] : rules_)
    if (has_share(rule.before, deployment)) rule.before.clear();
}

bool TrafficTable::has(std::string_view alias) const {
  const std::lock_guard lock(mutex_);
  return rules_.find(alias) != rules_.end();
}

std::optional<std::string> TrafficTable::choose(std::string_view alias, std::string_view who) const {
  const std::optional<TrafficRule> rule = find(alias);
  if (!rule) return std::nullopt;
  if (rule->shares.size() == 1) return rule->shares.front().deployment;
  const std::string own = who.empty() ? std::to_string(random_bits()) : fmt::format("{}\n{}", alias, who);
  const TrafficShare* best = nullptr;
  double least = 0;
  for (const TrafficShare& one : rule->shares) {
    if (one.weight == 0) continue;
    // Of independent times that are drawn with rates w, the first one is i's with probability w(i) over the sum of all.
    const double time = -std::log(drawn(own, one.deployment)) / static_cast<double>(one.weight);
    if (!best || time < least) best = &one, least = time;
  }
  return best->deployment;
}

std::optional<TrafficRule> TrafficTable::find(std::string_view alias) const {
  const std::lock_guard lock(mutex_);
  const auto found = rules_.find(alias);
  if (found == rules_.end()) return std::nullopt;
  return found->second;
}

std::vector<TrafficRule> TrafficTable::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<TrafficRule> all;
  for (const auto& [alias, rule] : rules_) all.push_back(rule);
  return all;
}

std::vector<TrafficShare> parse_shares(std::string_view text) {
  std::vector<TrafficShare> shares;
  while (true) {
    const std::string_view part = text.substr(0, text.find(','));
    const std::size_t colon = part.find(':');
    TrafficShare one{std::string(part.substr(0, colon)), 1};
    if (colon != std::string_view::npos) {
      const char *begin = part.data() + colon + 1, *end = part.data() + part.size();
      const auto [stop, fault] = std::from_chars(begin, end, one.weight);
      if (fault != std::errc() || stop != end || begin == end)
        fail(ErrorCode::invalid_argument, "the weight of '{}' is '{}', allowed is 0 to {}", shown_name(one.deployment), shown_name(std::string(begin, end)),
             TrafficTable::kMostWeight);
    }
    if (one.deployment.empty()) fail(ErrorCode::invalid_argument, "a name is missing, allowed is NAME:WEIGHT,NAME:WEIGHT or NAME");
    shares.push_back(std::move(one));
    if (part.size() == text.size()) return shares;
    text.remove_prefix(part.size() + 1);
  }
}

std::string shares_text(const std::vector<TrafficShare>& shares) {
  std::string text;
  for (const TrafficShare& one : shares) text += fmt::format("{}{}:{}", text.empty() ? "" : ",", one.deployment, one.weight);
  return text;
}

}  // namespace lockstep
