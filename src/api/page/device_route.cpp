#include "api/page/device_route.h"

#include <nlohmann/json.hpp>

namespace lockstep {
namespace {
using Json = nlohmann::ordered_json;

Json line(WorkClass work, const std::string& key) { return {{"class", work_class_name(work)}, {"key", key}}; }

// `snapshot`: null when the engine has stopped; then nothing is told of sequences.
Json told(const DeviceSources& sources, const ExecutorState& state, const ServiceSnapshot* snapshot) {
  Json shares = Json::object(), used = Json::array(), waiting = Json::array(), pieces = Json::array();
  for (std::size_t i = 0; i < kWorkClasses; ++i) shares[std::string(work_class_name(static_cast<WorkClass>(i)))] = state.shares.percent[i];
  for (const FairShares::Line& one : state.used) {
    used.push_back(line(one.work, one.key));
    used.back()["seconds"] = one.seconds;
  }
  const auto waits = [&](Json who, const char* unit, double much, const std::string& why) {
    who[unit] = much;
    who["why"] = why;
    waiting.push_back(std::move(who));
  };
  for (const FairShares::Line& one : state.waiting)
    if (!one.why.empty()) waits(line(one.work, one.key), "seconds", one.seconds, "its turn at the device: " + one.why);
  if (snapshot)
    for (const WaitingSequences& one : snapshot->waiting_by_key)
      waits(line(one.work, one.key), "count", static_cast<double>(one.count), "sequences that wait for a place in the batch or for pages of the cache");
  if (sources.models_waiting)
    for (const auto& [key, count] : sources.models_waiting())
      waits(line(WorkClass::training, key), "count", static_cast<double>(count), "models that wait for a place in memory (--max-models, --memory-megabytes)");
  for (const PieceKind& kind : state.kinds)
    pieces.push_back({{"kind", kind.name}, {"count", kind.pieces}, {"longest", kind.longest}, {"longest_stretch", kind.longest_stretch}});
  Json all{{"shares", shares}, {"used", used}, {"waiting", waiting}, {"pieces", pieces}};
  if (sources.kept_rows)
    for (const auto& [name, count] : sources.kept_rows()) all["kept_rows"][name] = count;
  return all;
}
}  // namespace

void add_device_route(Routes& routes, DeviceSources sources) {
  const auto shared = std::make_shared<const DeviceSources>(std::move(sources));
  routes.add({.method = "GET",
              .path = "/api/device",
              .handler =
                  [shared](const ApiRequest&, const std::shared_ptr<Responder>& out) {
                    // Taken before the snapshot, which is itself work on the device's executor.
                    const auto send = [shared, out, state = shared->executor->state()](const ServiceSnapshot* snapshot) {
                      out->send({200,
                                 "application/json",
                                 told(*shared, state, snapshot).dump(-1, ' ', false, Json::error_handler_t::replace),
                                 {{"Cache-Control", "no-store"}, {"X-Content-Type-Options", "nosniff"}}});
                    };
                    try {
                      shared->service->snapshot([send](const ServiceSnapshot& s) { send(&s); });
                    } catch (const Error&) {
                      send(nullptr);
                    }
                  },
              .query = std::vector<std::string>{}});
}

}  // namespace lockstep
