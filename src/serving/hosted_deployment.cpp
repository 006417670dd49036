#include "serving/hosted_deployment.h"

#include <algorithm>
#include <chrono>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/file.h"

namespace lockstep {
namespace {
constexpr std::size_t kMostHostedBytes = std::size_t{256} << 20;     // of the file
constexpr std::size_t kMostLocalRecordBytes = std::size_t{1} << 18;  // of a deployment as JSON, its ledger with it
static_assert(kMostHostedDeployments * (kMostLocalRecordBytes + 1) < kMostHostedBytes, "what is written can be read");

std::string text_of_deployments(const nlohmann::ordered_json& json) { return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace); }
}  // namespace

void Deployment::add(HotLoad load) {
  ledger.push_back(std::move(load));
  if (ledger.size() > kMostHotLoads) ledger.erase(ledger.begin());
}

nlohmann::ordered_json to_json(const Deployment& r) {
  nlohmann::ordered_json ledger = nlohmann::ordered_json::array();
  for (const HotLoad& one : r.ledger)
    ledger.push_back({{"identity", one.identity}, {"type", one.type}, {"began", one.began}, {"ended", one.ended}, {"failure", one.failure}});
  return {{"owner", r.owner},
          {"name", r.name},
          {"created", r.created},
          {"base_model", r.base_model},
          {"trainer_job", r.trainer_job},
          {"shape", r.shape},
          {"transition_type", r.transition_type},
          {"description", r.description},
          {"min_replicas", r.min_replicas},
          {"max_replicas", r.max_replicas},
          {"identity", r.identity},
          {"checkpoint", r.checkpoint},
          {"failed", r.failed},
          {"failure", r.failure},
          {"guesses", r.guesses},
          {"ledger", ledger}};
}

void from_json(const nlohmann::ordered_json& j, Deployment& r) {
  r = {j.at("owner"),           j.at("name"),        j.at("created"),         j.at("base_model"),   j.at("trainer_job"), j.at("shape"),
       j.at("transition_type"), j.at("description"), j.at("min_replicas"),    j.at("max_replicas"), j.at("identity"),    j.at("checkpoint"),
       j.at("failed"),          j.at("failure"),     j.value("guesses", true)};
  for (const nlohmann::ordered_json& one : j.value("ledger", nlohmann::ordered_json::array()))
    r.ledger.push_back({one.at("identity"), one.at("type"), one.at("began"), one.at("ended"), one.at("failure")});
}

Deployment changed_deployment(std::optional<Deployment> before, const std::string& owner, const std::string& name, const HostedDeployments::Change& change) {
  Deployment one;
  if (before) one = std::move(*before);
  else one.created = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  one.owner = owner;
  one.name = name;
  change(one);
  return one;
}

void sort_by_age(std::vector<Deployment>& deployments) {
  std::stable_sort(deployments.begin(), deployments.end(), [](const Deployment& a, const Deployment& b) { return a.created < b.created; });
}

void check_deployment_room(std::size_t all, const std::function<std::size_t()>& own, std::int64_t key_share, const std::string& place) {
  if (all >= kMostHostedDeployments) fail(ErrorCode::resource_exhausted, "{} has {} deployments, allowed are so many; delete some", place, all);
  const std::size_t share = std::max<std::size_t>(1, (kMostHostedDeployments * static_cast<std::size_t>(key_share) + 99) / 100);
  if (all < share) return;
  if (const std::size_t has = own(); has >= share)
    fail(ErrorCode::resource_exhausted, "this API key has {} deployments, allowed are {} of the {} of {} (--key-share); delete some", has, share,
         kMostHostedDeployments, place);
}

LocalDeployments::LocalDeployments(std::filesystem::path file, std::int64_t key_share) : file_(std::move(file)), key_share_(key_share) {
  std::error_code error;
  if (file_.empty() || !std::filesystem::exists(std::filesystem::symlink_status(file_, error))) return;
  const std::string text = read_file(file_, kMostHostedBytes);
  try {
    const nlohmann::ordered_json whole = read_json(text);
    for (const nlohmann::ordered_json& json : whole.at("deployments")) {
      Deployment one = json.get<Deployment>();
      deployments_[{one.owner, one.name}] = std::move(one);
    }
  } catch (const std::exception& e) {
    fail(ErrorCode::corrupt_file, "'{}' is damaged: {}; put an earlier copy of it there, or delete it: clients then make their deployments again",
         file_.string(), e.what());
  }
}

std::optional<Deployment> LocalDeployments::find(const std::string& owner, const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = deployments_.find({owner, name});
  return found == deployments_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<Deployment> LocalDeployments::all(const std::string& owner) {
  std::vector<Deployment> own;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, one] : deployments_)
      if (one.owner == owner) own.push_back(one);
  }
  sort_by_age(own);
  return own;
}

std::optional<Deployment> LocalDeployments::changed(const std::string& owner, const std::string& name, const Change& change, bool makes) {
  const std::lock_guard one_at_a_time(changes_);
  std::optional<Deployment> before = find(owner, name);
  if (!before && !makes) return std::nullopt;
  if (!before) {
    const auto own = [&] {
      return static_cast<std::size_t>(std::count_if(deployments_.begin(), deployments_.end(), [&](const auto& row) { return row.first.first == owner; }));
    };
    check_deployment_room(deployments_.size(), own, key_share_, "this server");
  }
  Deployment one = changed_deployment(std::move(before), owner, name, change);
  const std::size_t bytes = text_of_deployments(to_json(one)).size();
  if (bytes > kMostLocalRecordBytes)
    fail(ErrorCode::invalid_argument, "the deployment takes {} bytes with its ledger, allowed are {}; empty its ledger", bytes, kMostLocalRecordBytes);
  if (file_.empty()) {
    const std::lock_guard lock(mutex_);
    deployments_[{owner, name}] = one;
    return one;
  }
  ByName all = deployments_;
  all[{owner, name}] = one;
  keep(std::move(all));
  return one;
}

void LocalDeployments::remove(const std::string& owner, const std::string& name) {
  const std::lock_guard one_at_a_time(changes_);
  ByName all = deployments_;
  if (all.erase({owner, name}) > 0) keep(std::move(all));
}

// On the disk first: what is answered with 200 is there after a kill.
void LocalDeployments::keep(ByName changed) {
  if (!file_.empty()) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const auto& [key, one] : changed) rows.push_back(to_json(one));
    const nlohmann::ordered_json whole{{"deployments", std::move(rows)}};
    write_file_atomic(file_, text_of_deployments(whole) + "\n");
  }
  const std::lock_guard lock(mutex_);
  deployments_ = std::move(changed);
}

}  // namespace lockstep
