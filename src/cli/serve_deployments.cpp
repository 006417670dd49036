#include "cli/serve_deployments.h"

#include <algorithm>
#include <ctime>

#include "api/openai/channel_gate.h"
#include "base/bounded_json.h"
#include "base/log.h"
#include "base/signals.h"
#include "jobs/deployment_gate.h"

namespace lockstep {
namespace {
// Runs `work` on an entry of the record; an Error then also names the record's file and says what to do.
template <class F>
auto with_record(const StoredDeployments& stored, const std::string& what, F&& work) -> decltype(work()) {
  try {
    return work();
  } catch (const Error& e) {
    fail(e.code(), "'{}' has {}, but {}; put right what it names, or delete the file: models and aliases are then as the command line says",
         stored.file().string(), what, e.message());
  }
}
}  // namespace

CommandLineDeployments::CommandLineDeployments(const DeploySettings& settings, RuntimeSettings& runtime, std::string& name)
    : stored_(settings.state.empty() ? nullptr : std::make_shared<StoredDeployments>(settings.state)),
      reports_(std::make_shared<GateReports>(stored_ ? std::filesystem::path(settings.state) / "gates.json" : std::filesystem::path())),
      folder_(settings.folder),
      administrators_(settings.administrators),
      sleep_{settings.scale_to_zero_minutes * 60, settings.cold_start_seconds},
      rules_(deploy_routes(settings)),
      own_source_(runtime.model) {
  for (DeploySource& one : deploy_sources(settings)) beside_.push_back({std::move(one.name), std::move(one.source), false, {}, one.follows});
  if (runtime.model.empty()) {
    if (beside_.empty()) throw UsageError("--model is missing; `lockstep serve --help` shows an example");
    if (!name.empty()) throw UsageError(fmt::format("name is {}, allowed is to leave it out without --model: --deploy says the names", name));
    if (beside_.front().follows)
      throw UsageError(fmt::format("deploy-follow is '{}', which is the server's own model: --follow is for that", beside_.front().name));
    own_source_ = beside_.front().source;
    name = beside_.front().name;
    beside_.erase(beside_.begin());
    own_place_ = std::make_unique<const ModelPlace>(own_source_);
    runtime.model = own_place_->path();
  }
  if (stored_) take_stored();
}

void CommandLineDeployments::take_stored() {
  record_ = stored_->record();
  const auto is_made = [&](const std::string& name) {
    return std::any_of(record_.made.begin(), record_.made.end(), [&](const DeploymentRecord::Made& one) { return one.name == name; });
  };
  std::erase_if(beside_, [&](const Beside& one) {
    const bool made = is_made(one.name), deleted = std::find(record_.deleted.begin(), record_.deleted.end(), one.name) != record_.deleted.end();
    if (made || deleted)
      log_warning("a deployment of the command line gives way to what was changed over HTTP",
                  {{"name", one.name}, {"changed", made ? "another was made by that name" : "it was deleted"}, {"kept", stored_->file().string()}});
    return made || deleted;
  });
  for (const DeploymentRecord::Made& one : record_.made) {
    if (folder_.empty())
      throw UsageError(fmt::format("deploy-folder is missing: '{}' has the deployment '{}', which was made of '{}' below it", stored_->file().string(),
                                   one.name, one.source));
    beside_.push_back({one.name, one.source, true, one.snapshot});
  }
  std::erase_if(rules_, [&](const TrafficRule& one) { return record_.aliases.contains(one.alias); });
  for (const auto& [alias, rule] : record_.aliases)
    if (rule) rules_.push_back(*rule);
}

// The record has the snapshot's id, since its channel may point elsewhere by now.
std::shared_ptr<const ModelPlace> CommandLineDeployments::place_of(const Beside& one) const {
  if (!one.is_stored) return std::make_shared<const ModelPlace>(one.source);
  return with_record(*stored_, fmt::format("the deployment '{}' of '{}'", one.name, one.source), [&] {
    const std::string source = one.snapshot.empty() ? one.source : (std::filesystem::path(one.source).parent_path() / one.snapshot).string();
    return std::make_shared<const ModelPlace>(place_below(folder_, source));
  });
}

std::int64_t CommandLineDeployments::least_bytes(const RuntimeSettings& runtime, const EngineOptions& engine) {
  std::int64_t bytes = 0;
  for (const Beside& one : beside_) {
    RuntimeSettings beside = runtime;
    beside.model = places_.emplace_back(place_of(one))->path();
    bytes += least_deployment_bytes(beside, engine) * (one.follows ? 2 : 1);
  }
  return bytes;
}

std::shared_ptr<Deployments> CommandLineDeployments::open(std::shared_ptr<GenerationService> own, Follows own_follows, const DeploymentOpener& opener) {
  if (own_place_ && !own_place_->snapshot().empty()) own->weights().name(own_place_->snapshot());
  ModelDeployment first{.name = own->model().name(), .source = own_source_, .service = std::move(own), .follows = own_follows};
  first.created = static_cast<double>(std::time(nullptr));
  const auto deployments = std::make_shared<Deployments>(std::make_shared<TrafficTable>(), std::move(first));
  for (std::size_t i = 0; i < beside_.size(); ++i) {
    deployments->check_name(beside_[i].name);
    Followed followed;
    ModelDeployment one = beside_[i].follows ? opener.open(beside_[i].name, places_[i], &followed) : opener.open_or_asleep(beside_[i].name, places_[i]);
    one.source = beside_[i].source;
    if (beside_[i].follows) following_.push_back({one.name, one.source, std::move(followed), one.service});
    else places_[i].reset();
    deployments->add(std::move(one));
  }
  for (TrafficRule rule : rules_) {
    const auto add = [&] {
      if (rule.gate) {
        const auto gate = read_json(*rule.gate);
        read_gate(gate, "gate");
        rule.gate = gate_to_keep(*deployments, rule, gate);
      }
      deployments->restore(rule);
    };
    if (record_.aliases.contains(rule.alias)) with_record(*stored_, fmt::format("the alias '{}'", rule.alias), add);
    else add();
  }
  const auto judge = [](const GateSpec& spec, const GateSide& candidate, const std::optional<GateSide>& live, const StopToken& stop) {
    return judge_deployment(spec, candidate, live, stop);
  };
  gate_ = std::make_shared<AliasGate>(deployments, judge, reports_, interrupt_token());
  if (sleep_.idle_seconds > 0) deployments->set_sleep(sleep_);
  return deployments;
}

std::shared_ptr<VersionGate> CommandLineDeployments::gate_of(const std::string& deployment) const { return channel_gate(gate_, deployment); }

void CommandLineDeployments::start_followers(const std::string& url, std::int64_t port) {
  for (Following& one : following_) {
    FollowSettings settings;
    settings.place = one.place;
    settings.replica = fmt::format("{}-{}", replica_name(port), one.name).substr(0, 64);  // as long as a record's name may be
    followers_.push_back(start_follower(settings, std::move(one.service), one.followed, open_fleet(settings), url, port, gate_of(one.name)));
  }
  following_.clear();
}

void CommandLineDeployments::stop_followers() {
  for (const std::unique_ptr<Follower>& one : followers_) one->stop();
  followers_.clear();
}

ModelDeploymentRouteOptions CommandLineDeployments::route_options(std::shared_ptr<const KeyRing> keys,
                                                                  const std::shared_ptr<const DeploymentOpener>& opener) const {
  ModelDeploymentRouteOptions options;
  if (opener) options.open = [opener](const std::string& name, const std::string& source) { return opener->open_below(name, source); };
  options.keys = std::move(keys);
  options.administrators = administrators_;
  options.stored = stored_;
  options.gate = gate_;
  return options;
}

}  // namespace lockstep
