#include "cli/deployment_opener.h"

#include <algorithm>
#include <chrono>

#include "base/entropy.h"
#include "base/error.h"
#include "base/log.h"
#include "cli/shipped.h"
#include "sync/snapshot.h"
#include "sync/snapshot_pull.h"

namespace lockstep {
namespace fs = std::filesystem;

ModelPlace::ModelPlace(const std::string& source) : path_(shipped("models", source)) {
  std::error_code error;
  if (fs::exists(path_, error)) return;
  const std::size_t slash = source.rfind('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == source.size())
    fail(ErrorCode::not_found, "'{}' is no model folder here, and no STORE/SNAPSHOT or STORE/CHANNEL", source);
  const std::string place = source.substr(0, slash), snapshot = source.substr(slash + 1);
  with_context(fmt::format("looking for the model '{}', which is no folder here, in the store '{}'", source, place), [&] {
    const std::unique_ptr<Store> store = open_store(place);
    const std::string id = find_snapshot(*store, snapshot);
    const fs::path folder = fs::temp_directory_path() / fmt::format("lockstep-deploy-{:016x}", random_bits());
    made_ = folder;
    try {
      pull_snapshot(*store, id, folder, Overwrite::no, {});
    } catch (...) {
      fs::remove_all(folder, error);
      throw;
    }
    path_ = folder.string();
    snapshot_ = id;
    log_info("a snapshot was pulled", {{"source", source}, {"snapshot", id}});
  });
}

ModelPlace::~ModelPlace() {
  std::error_code error;
  if (!made_.empty()) fs::remove_all(made_, error);
}

LoadedDeployment DeploymentOpener::load(const std::string& name, const ModelPlace& place, Followed* followed) const {
  const std::lock_guard lock(one_);
  return with_context(fmt::format("loading the deployment '{}'", name), [&] {
    RuntimeSettings runtime = parts_.runtime;
    runtime.model = place.path();
    ServingOptions serving = parts_.serving;
    serving.engine.ranks = rank_layout(runtime.ranks);
    // A deployment that sleeps and wakes always gets the same cache, so that the requests that fit do not depend on other models in memory.
    const bool sleeps = parts_.sleeps && !followed;
    const std::int64_t cache_bytes = sleeps && parts_.cache_bytes == 0 ? least_deployment_cache(runtime, serving.engine) : parts_.cache_bytes;
    // The weights of a deployment that follows a channel will change, so both copies are claimed even if others share them now.
    const bool counts_once = parts_.pool && !followed;
    DeploymentMemory memory =
        admit_deployment(*parts_.ledger, runtime, serving.engine, cache_bytes, counts_once ? std::optional<std::int64_t>(parts_.pool->bytes()) : std::nullopt);
    serving.engine.cache_bytes = memory.cache_bytes;
    LoadedDeployment made{.memory = {std::move(memory.claims)}};
    std::shared_ptr<WeightPool::Part> part;
    const OpenedModel opened = open_model(runtime);
    if (parts_.pool) {
      opened.runtime->backend.device().share_pool(parts_.first->backend.device());  // they compute in turns
      part = parts_.pool->part(fmt::format("the model '{}'", runtime.model), followed ? WeightPool::Claims::none : WeightPool::Claims::each);
      if (!followed) made.memory.weights = part;
    }
    serving.engine.ranks = opened.ranks;
    ServingModel model = serving_model(opened, 0, part.get());
    model.executor = parts_.executor;
    model.name = name;
    if (followed) {
      *followed = {opened.runtime, parts_.executor, model.weights, opened.reader, part};
      made.memory.claims.push_back(parts_.ledger->claim("deployments", {}, loaded_bytes(*opened.model, opened.runtime->profile).weights,
                                                        fmt::format("a second copy of the weights of '{}', which follows a channel", name)));
    }
    add_served_defaults(model, runtime.model, {.generation_config = parts_.generation_config});
    made.service = std::make_shared<GenerationService>(std::move(model), serving);
    if (!place.snapshot().empty()) made.service->weights().name(place.snapshot());
    if (parts_.prepare) parts_.prepare(*made.service);
    log_info("a deployment is ready",
             {{"name", name}, {"model", place.path()}, {"snapshot", place.snapshot()}, {"profile", made.service->model().profile_name()}});
    return made;
  });
}

ModelDeployment DeploymentOpener::described(const std::string& name, const std::shared_ptr<const ModelPlace>& place) const {
  ModelDeployment made{.name = name};
  made.created = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  made.snapshot = place->snapshot();
  if (parts_.sleeps) made.load = [opener = shared_from_this(), name, place] { return opener->load(name, *place, nullptr); };
  return made;
}

ModelDeployment DeploymentOpener::open(const std::string& name, std::shared_ptr<const ModelPlace> place, Followed* followed) const {
  ModelDeployment made = described(name, place);
  LoadedDeployment loaded = load(name, *place, followed);
  made.memory = std::move(loaded.memory);
  made.service = std::move(loaded.service);
  if (followed) {
    made.follows = Follows::beside;
    made.snapshot.clear();
    made.load = nullptr;
  }
  return made;
}

ModelDeployment DeploymentOpener::open_or_asleep(const std::string& name, const std::shared_ptr<const ModelPlace>& place) const {
  try {
    return open(name, place);
  } catch (const Error& e) {
    RuntimeSettings runtime = parts_.runtime;
    runtime.model = place->path();
    EngineOptions engine = parts_.serving.engine;
    engine.ranks = rank_layout(runtime.ranks);
    const std::int64_t room = parts_.ledger->free() + parts_.ledger->held("deployments") + (parts_.pool ? parts_.pool->bytes() : 0);
    if (e.code() != ErrorCode::resource_exhausted || !parts_.sleeps || least_deployment_bytes(runtime, engine) > room) throw;
    log_info("a deployment is asleep until it is asked for, for others have the memory", {{"name", name}});
    return described(name, place);
  }
}

std::string place_below(const std::string& folder, const std::string& source) {
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  if (error) fail(ErrorCode::io, "the folder of models cannot be read: {}", error.message());
  const auto below = [&](const fs::path& path) {  // empty: it is not there, or elsewhere
    const fs::path whole = fs::canonical(root / path, error);
    return !error && std::mismatch(root.begin(), root.end(), whole.begin(), whole.end()).first == root.end() ? whole : fs::path();
  };
  fs::path whole = source.empty() ? fs::path() : below(source);
  if (whole == root) whole.clear();
  if (whole.empty()) {
    const fs::path wanted(source), store = below(wanted.parent_path());
    if (!store.empty() && fs::is_directory(store / "objects", error) && wanted.has_filename() && wanted.filename() != "." && wanted.filename() != "..")
      whole = store / wanted.filename();
  }
  if (whole.empty()) fail(ErrorCode::not_found, "source is no model below the server's folder of models, and no snapshot or channel of a store there");
  return whole.string();
}

ModelDeployment DeploymentOpener::open_below(const std::string& name, const std::string& source) const {
  ModelDeployment made = open(name, std::make_shared<const ModelPlace>(place_below(parts_.folder, source)));
  made.source = source;
  return made;
}

}  // namespace lockstep
