#include "cli/serve_deployments.h"

#include <algorithm>
#include <ctime>

#include "base/log.h"

namespace lockstep {
namespace {
// Runs `work` on what the record has; an Error of it says where that stands, and what to do.
template <class F>
auto with_record(const KeptDeployments& kept, const std::string& what, F&& work) -> decltype(work()) {
  try {
    return work();
  } catch (const Error& e) {
    fail(e.code(), "'{}' has {}, but {}; put right what it names, or delete the file: models and aliases are then as the command line says",
         kept.file().string(), what, e.message());
  }
}
}  // namespace

CommandLineDeployments::CommandLineDeployments(const DeploySettings& settings, RuntimeSettings& runtime, std::string& name)
    : kept_(settings.state.empty() ? nullptr : std::make_shared<KeptDeployments>(settings.state)),
      folder_(settings.folder),
      rules_(deploy_routes(settings)),
      own_source_(runtime.model) {
  for (DeploySource& one : deploy_sources(settings)) beside_.push_back({std::move(one.name), std::move(one.source)});
  if (runtime.model.empty()) {
    if (beside_.empty()) throw UsageError("--model is missing; `lockstep serve --help` shows an example");
    if (!name.empty()) throw UsageError(fmt::format("name is {}, allowed is to leave it out without --model: --deploy says the names", name));
    own_source_ = beside_.front().source;
    name = beside_.front().name;
    beside_.erase(beside_.begin());
    own_place_ = std::make_unique<const ModelPlace>(own_source_);
    runtime.model = own_place_->path();
  }
  if (kept_) take_kept();
}

void CommandLineDeployments::take_kept() {
  record_ = kept_->record();
  const auto is_made = [&](const std::string& name) {
    return std::any_of(record_.made.begin(), record_.made.end(), [&](const DeploymentRecord::Made& one) { return one.name == name; });
  };
  std::erase_if(beside_, [&](const Beside& one) {
    const bool made = is_made(one.name), deleted = std::find(record_.deleted.begin(), record_.deleted.end(), one.name) != record_.deleted.end();
    if (made || deleted)
      log_warning("a deployment of the command line gives way to what was changed over HTTP",
                  {{"name", one.name}, {"changed", made ? "another was made by that name" : "it was deleted"}, {"kept", kept_->file().string()}});
    return made || deleted;
  });
  for (const DeploymentRecord::Made& one : record_.made) {
    if (folder_.empty())
      throw UsageError(fmt::format("deploy-folder is missing: '{}' has the deployment '{}', which was made of '{}' below it", kept_->file().string(), one.name,
                                   one.source));
    beside_.push_back({one.name, one.source, true, one.snapshot});
  }
  std::erase_if(rules_, [&](const TrafficRule& one) { return record_.aliases.contains(one.alias); });
  for (const auto& [alias, rule] : record_.aliases)
    if (rule) rules_.push_back(*rule);
}

// A channel may point elsewhere by now: what was kept is the snapshot.
std::unique_ptr<const ModelPlace> CommandLineDeployments::place_of(const Beside& one) const {
  if (!one.is_kept) return std::make_unique<const ModelPlace>(one.source);
  return with_record(*kept_, fmt::format("the deployment '{}' of '{}'", one.name, one.source), [&] {
    const std::string source = one.snapshot.empty() ? one.source : (std::filesystem::path(one.source).parent_path() / one.snapshot).string();
    return std::make_unique<const ModelPlace>(place_below(folder_, source));
  });
}

std::int64_t CommandLineDeployments::least_bytes(const RuntimeSettings& runtime, const EngineOptions& engine) {
  std::int64_t bytes = 0;
  for (const Beside& one : beside_) {
    RuntimeSettings beside = runtime;
    beside.model = places_.emplace_back(place_of(one))->path();
    bytes += least_deployment_bytes(beside, engine);
  }
  return bytes;
}

std::shared_ptr<Deployments> CommandLineDeployments::open(std::shared_ptr<GenerationService> own, const DeploymentOpener& opener) {
  if (own_place_ && !own_place_->snapshot().empty()) own->name_weights(own_place_->snapshot());
  ModelDeployment first{.name = own->model().name(), .source = own_source_, .service = std::move(own)};
  first.created = static_cast<double>(std::time(nullptr));
  const auto deployments = std::make_shared<Deployments>(std::make_shared<TrafficTable>(), std::move(first));
  for (std::size_t i = 0; i < beside_.size(); ++i) {
    deployments->check_name(beside_[i].name);
    ModelDeployment one = opener.open(beside_[i].name, *places_[i]);
    one.source = beside_[i].source;
    deployments->add(std::move(one));
  }
  for (const TrafficRule& rule : rules_) {
    if (record_.aliases.contains(rule.alias)) with_record(*kept_, fmt::format("the alias '{}'", rule.alias), [&] { deployments->restore(rule); });
    else deployments->route(rule.alias, rule.shares);
  }
  places_.clear();
  return deployments;
}

}  // namespace lockstep
