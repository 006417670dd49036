#include "host/control_plane.h"

#include <cctype>

#include "base/hash.h"
#include "base/log.h"
#include "base/server_paths.h"
#include "host/promoted_models.h"
#include "serving/plain_name.h"

namespace lockstep {
namespace {
constexpr const char* kLocalJob = "local";

// "accounts/a/KIND/REST" -> "REST"; nothing for another kind.
std::optional<std::string> rest_of_name(const std::string& name, const std::string& kind) {
  constexpr std::string_view kAccounts = "accounts/";
  if (!name.starts_with(kAccounts)) return std::nullopt;
  const std::size_t slash = name.find('/', kAccounts.size());
  if (slash == std::string::npos || name.compare(slash + 1, kind.size() + 1, kind + "/") != 0) return std::nullopt;
  return name.substr(slash + kind.size() + 2);
}

std::int64_t bytes_below(const std::filesystem::path& folder) {
  std::int64_t bytes = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, error))
    if (entry.is_regular_file(error)) bytes += static_cast<std::int64_t>(entry.file_size(error));
  return bytes;
}

void check_label(const std::string& what, const std::string& label) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; };
  if (label.empty() || label.size() > 63 || !std::all_of(label.begin(), label.end(), plain))
    fail(ErrorCode::invalid_argument, "{} is '{}', allowed are 1 to 63 of a-z, 0-9 and -", what, shown_name(label));
}
}  // namespace

Deployment ControlPlane::hot_load(const std::string& owner, const std::string& name, const std::string& identity, const std::string& base_model) {
  if (const auto now = deployments.find(owner, name); now && now->identity == identity && now->failed.empty()) return *now;
  std::string path, failure;
  HotLoad load{.identity = identity, .type = {}, .began = unix_now(), .ended = 0, .failure = {}};
  try {
    const CheckpointRecord checkpoint = to_.checkpoints.find(owner, identity, "sampler_weights");
    path = checkpoint.path();
    load.type = checkpoint.type;
    to_.weights.of_checkpoint(owner, path);
  } catch (const Error& e) {
    failure = without_server_paths(e.what());
    if (failure != e.what()) log_warning("a deployment could not be loaded", {{"deployment", name}, {"reason", e.what()}});
  }
  const std::optional<Deployment> loaded = deployments.change_existing(owner, name, [&](Deployment& d) {
    if (d.base_model.empty()) d.base_model = base_model;
    d.failed = failure.empty() ? "" : identity;
    d.failure = load.failure = failure;
    load.ended = unix_now();
    d.add(load);
    if (!failure.empty()) return;
    d.identity = identity;
    d.checkpoint = path;
  });
  if (!loaded) fail(ErrorCode::not_found, "there is no deployment '{}'; it was deleted while its weights were read", shown_name(name));
  return *loaded;
}

SamplerWeights ControlPlane::weights(const std::string& owner, const std::string& name) {
  if (commons_.base->is_called(name)) return {};
  if (const auto model = models.find(owner, name)) return to_.weights.of_promoted(*model);
  if (const auto deployment = deployments.find(owner, name)) {
    if (!deployment->checkpoint.empty()) return to_.weights.of_checkpoint(owner, deployment->checkpoint);
    if (const auto model = models.find(owner, deployment->base_model)) return to_.weights.of_promoted(*model);
    return {};
  }
  if (const auto rest = rest_of_name(name, "trainingSamplers")) {
    if (rest->starts_with("checkpoints/")) return to_.weights.of_checkpoint(owner, rest->substr(std::string("checkpoints/").size()));
    if (!rest_of_name(*rest, "trainingSamplers")) return weights(owner, *rest);
  }
  if (const auto rest = rest_of_name(name, "trainingSessions")) {
    const std::size_t slash = rest->find("/checkpoints/");
    const std::string session = rest->substr(0, slash);
    to_.sessions.find(owner, session);  // an error where there is no such session
    if (slash == std::string::npos) {
      for (const ModelRecord& model : to_.models.all(owner))  // what its models began with
        if (model.session == session)
          if (const auto promoted = models.find(owner, model.settings.base_model)) return to_.weights.of_promoted(*promoted);
      return {};
    }
    return to_.weights.of_checkpoint(owner, rest->substr(slash + std::string("/checkpoints/").size()));
  }
  fail(ErrorCode::not_found, "there is no model '{}'; allowed are the base ({}), deployments, promoted models and sampler checkpoints of this key",
       name.substr(0, 80), fmt::join(commons_.base->names, ", "));
}

PromotedModel ControlPlane::promote(const std::string& owner, const std::string& checkpoint, const std::string& name, const std::string& base_model) {
  check_short_text("output_model", name);  // whose account may be any
  const auto label = rest_of_name(name, "models");
  if (!label) fail(ErrorCode::invalid_argument, "output_model is '{}', allowed is accounts/ACCOUNT/models/NAME", shown_name(name));
  check_label("the output model's name", *label);
  if (models.find(owner, name)) fail(ErrorCode::already_exists, "the model '{}' exists already", name);
  const CheckpointRecord from = to_.checkpoints.find(owner, checkpoint, "sampler_weights");
  if (from.kind != "sampler_weights") fail(ErrorCode::invalid_argument, "the checkpoint {} is of kind {}, allowed is sampler_weights", from.path(), from.kind);
  commons_.refuse_critic(from.settings.base_model, kNothingToSample);
  if (!base_model.empty() && base_model != from.settings.base_model &&
      !(commons_.base->is_called(base_model) && commons_.base->is_called(from.settings.base_model)))
    fail(ErrorCode::invalid_argument, "base_model is '{}', the checkpoint is of a model on '{}'", base_model, from.settings.base_model);
  PromotedModel model;
  model.owner = owner;
  model.name = name;
  model.base_model = base_model.empty() ? from.settings.base_model : base_model;
  model.checkpoint = from.path();
  model.settings = from.settings;
  model.folder = (std::filesystem::path("models") / sha256_hex(owner + " " + name).substr(0, 16) / *label).string();
  const std::filesystem::path folder = promoted_folder(commons_, model);
  to_.checkpoints.check_room(owner, {}, from.bytes);
  model.profile = to_.files.write_for_others(from, folder);
  model.bytes = bytes_below(folder);
  return models.change(owner, name, [&](PromotedModel& made) {
    model.created = made.created;
    made = model;
  });
}

void ControlPlane::remove_model(const std::string& owner, const std::string& name) {
  const auto model = models.find(owner, name);
  if (!model) fail(ErrorCode::not_found, "there is no model '{}'", name);
  models.remove(owner, name);
  std::error_code ignored;
  std::filesystem::remove_all(promoted_folder(commons_, *model), ignored);
}

std::filesystem::path ControlPlane::adapter_folder(const std::string& owner, const std::string& name) const {
  if (const auto model = models.find(owner, name)) {
    if (!model->adapter()) fail(ErrorCode::invalid_argument, "'{}' is no adapter but whole weights; allowed are adapters", shown_name(name));
    check_profile_of(commons_, *model);
    return promoted_folder(commons_, *model);
  }
  if (const auto label = rest_of_name(name, "models")) {
    check_label("the adapter's name", *label);
    const std::filesystem::path placed = commons_.options.state / "adapters" / *label;
    std::error_code error;
    if (std::filesystem::is_directory(placed, error)) return placed;
  }
  fail(ErrorCode::not_found, "there is no adapter '{}'; allowed are promoted models, and folders below adapters/ of the server's state", name);
}

TrainerJob ControlPlane::job(const std::string& owner, const std::string& name) const {
  if (const auto found = jobs.find(owner, name)) return *found;
  const auto label = rest_of_name(name, "rlorTrainerJobs");
  if (!label || *label != kLocalJob) fail(ErrorCode::not_found, "there is no trainer job '{}'", name);
  TrainerJob local;
  local.owner = owner;
  local.name = name;
  local.base_model = commons_.base->name;
  return local;
}

TrainerJob ControlPlane::end_job(const std::string& owner, const std::string& name, const std::string& state) {
  if (!jobs.find(owner, name)) fail(ErrorCode::not_found, "there is no trainer job '{}'", name);
  const std::string label = *rest_of_name(name, "rlorTrainerJobs");
  for (const SessionRecord& session : to_.sessions.all(owner))
    if (session.job == label) to_.drop_models(owner, session.id);
  return jobs.change(owner, name, [&](TrainerJob& job) {
    job.state = state;
    job.updated = unix_now();
  });
}

}  // namespace lockstep
