#include "api/fireworks/fleet_routes.h"

#include <condition_variable>
#include <list>
#include <map>

#include "api/errors.h"
#include "api/json_fields.h"
#include "base/log.h"
#include "base/server_paths.h"
#include "serving/plain_name.h"

namespace lockstep {
namespace {
ApiResponse fleet_answer(const nlohmann::ordered_json& json) {
  return {200, "application/json", json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace), {}};
}

nlohmann::ordered_json fleet_json(FleetPort& fleet) {
  nlohmann::ordered_json replicas = nlohmann::ordered_json::array();
  for (const FleetMember& one : fleet.members()) {
    nlohmann::ordered_json seconds = nlohmann::ordered_json::object();
    for (const auto& [stage, time] : one.seconds) seconds[stage] = time;
    replicas.push_back({{"name", one.name},
                        {"url", one.url},
                        {"stage", one.lost ? "lost" : one.stage},
                        {"current", one.current},
                        {"target", one.target},
                        {"current_identity", one.current_identity},
                        {"target_identity", one.target_identity},
                        {"sequence", one.sequence},
                        {"lost", one.lost},
                        {"silent_seconds", one.silent_seconds},
                        {"downloaded_bytes", one.downloaded_bytes},
                        {"full_bytes", one.full_bytes},
                        {"seconds", seconds},
                        {"error", without_server_paths(one.error)}});
  }
  return {{"channel", without_server_paths(fleet.describe())}, {"replicas", std::move(replicas)}};
}
}  // namespace

nlohmann::ordered_json hot_load_json(const std::vector<FleetMember>& members) {
  nlohmann::ordered_json replicas = nlohmann::ordered_json::array();
  for (const FleetMember& one : members) {
    nlohmann::ordered_json state{{"stage", one.lost ? "lost" : one.stage}, {"target_snapshot_identity", one.target_identity}};
    if (!one.error.empty()) state["message"] = without_server_paths(one.error);
    replicas.push_back({{"readiness", one.serves}, {"current_snapshot_identity", one.current_identity}, {"loading_state", state}, {"name", one.name}});
  }
  return {{"replicas", std::move(replicas)}};
}

struct FleetWaiter::State {
  struct Waiting {
    FleetSignal signal;
    std::function<void(const FleetProgress&)> answer;
    std::chrono::steady_clock::time_point until;
  };
  std::shared_ptr<FleetPort> fleet;
  std::mutex mutex;
  std::condition_variable wake;
  std::list<Waiting> waiting;
  std::size_t open = 0;  // those that are looked at now, too
  bool stopping = false;

  void work() {
    constexpr auto kPoll = std::chrono::milliseconds(50);
    std::unique_lock lock(mutex);
    while (true) {
      wake.wait(lock, [this] { return stopping || !waiting.empty(); });
      std::list<Waiting> now = std::move(waiting);
      waiting.clear();
      const bool last = stopping;
      lock.unlock();
      std::map<std::uint64_t, FleetProgress> seen;  // by the signal's number: one look for all who wait for it
      std::size_t answered = 0;
      for (auto one = now.begin(); one != now.end();) {
        const auto [found, fresh] = seen.try_emplace(one->signal.sequence);
        if (fresh) found->second = progress_of(one->signal);
        if (found->second.ended || last || std::chrono::steady_clock::now() >= one->until) {
          one->answer(found->second);
          one = now.erase(one);
          ++answered;
        } else {
          ++one;
        }
      }
      lock.lock();
      open -= answered;
      waiting.splice(waiting.end(), now);
      if (last) return;
      wake.wait_for(lock, kPoll, [this] { return stopping; });
    }
  }

  FleetProgress progress_of(const FleetSignal& signal) const {
    try {
      return fleet->progress(signal);
    } catch (const std::exception& e) {  // the store may come back
      log_warning("the fleet cannot be seen", {{"reason", e.what()}});
      return {};
    }
  }
};

FleetWaiter::FleetWaiter(std::shared_ptr<FleetPort> fleet) : state_(std::make_shared<State>()) {
  state_->fleet = std::move(fleet);
  thread_ = std::thread([state = state_] { state->work(); });
}

FleetWaiter::~FleetWaiter() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    state_->wake.notify_all();
  }
  thread_.join();
}

void FleetWaiter::load(const std::string& identity, const std::shared_ptr<Responder>& out, const std::string& transition) {
  constexpr std::size_t kMost = 1024;
  FleetSignal signal;
  try {
    signal = state_->fleet->load(identity, transition);
  } catch (const Error& e) {
    throw RequestError(e.code(), "identity", without_server_paths(e.message()));
  }
  const std::lock_guard lock(state_->mutex);
  if (state_->open >= kMost) fail(ErrorCode::resource_exhausted, "{} hot loads wait for the fleet, allowed are so many; try again later", kMost);
  const auto answer = [out, identity](const FleetProgress& progress) {
    nlohmann::ordered_json json{{"identity", identity}, {"ready", progress.ready}};
    if (!progress.error.empty()) json["message"] = without_server_paths(progress.error);
    out->send(fleet_answer(json));
  };
  const auto time = std::chrono::milliseconds(static_cast<std::int64_t>(1000 * kLoadSeconds));
  state_->waiting.push_back({std::move(signal), answer, std::chrono::steady_clock::now() + time});
  ++state_->open;
  state_->wake.notify_all();
}

void add_fleet_routes(Routes& routes, const std::shared_ptr<FleetPort>& fleet) {
  const auto waiter = std::make_shared<FleetWaiter>(fleet);
  RequestLanes& lanes = routes.lanes();
  const auto failed = [](const std::exception& e) { return error_response(e); };
  const std::string hot_load = "/hot_load/v1/models/hot_load";
  routes.add({"POST", hot_load, [=, &lanes](ApiRequest& request, const std::shared_ptr<Responder>& out) {
                lanes.small.post(
                    std::move(request), out,
                    [=](ApiRequest& r) {
                      std::string identity;
                      JsonFields fields;
                      fields.text("identity", &identity);
                      fields.harmless("reset_prompt_cache");  // cached prompts are found under the weights that made them, and no others
                      fields.harmless("incremental_snapshot_metadata");
                      fields.read(parse_object(r.body));
                      if (identity.empty()) fail_field("identity", "is missing");
                      check_plain_name("identity", identity);
                      waiter->load(identity, out);
                    },
                    failed);
              }});
  const auto tell = [=, &routes, &lanes](const std::string& path, std::function<nlohmann::ordered_json(FleetPort&)> json) {
    routes.add({"GET", path, [=, &lanes](ApiRequest& request, const std::shared_ptr<Responder>& out) {
                  lanes.small.post(
                      std::move(request), out, [=](ApiRequest&) { out->send(fleet_answer(json(*fleet))); }, failed);
                }});
  };
  tell(hot_load, [](FleetPort& port) { return hot_load_json(port.members()); });
  tell("/api/fleet", fleet_json);
}

}  // namespace lockstep
