// Serverless training: sessions (ts-...) whose models are runs, sampled by name without a deployment.
#include "api/errors.h"
#include "api/fireworks/fireworks_routes.h"

namespace lockstep {
namespace {
constexpr const char* kSessions = "trainingSessions";

TrainingJson session_json(const TrainingCall& call, const SessionRecord& s) {
  return {{"name", resource_name(call, kSessions, s.id)},
          {"createTime", iso_time(s.created)},
          {"updateTime", iso_time(s.seen)},
          {"state", s.status == "active" ? "ACTIVE" : "CLOSED"}};
}

SessionRecord serverless_session(const TrainingCall& call) {
  const std::string id = path_segment(call, "session");
  if (!id.starts_with("ts-")) throw RequestError(ErrorCode::not_found, "session", fmt::format("there is no training session '{}'", shown(id)), 404);
  return call.service.sessions().find(call.owner, id);
}

// A route for sampling without a session: this server answers for every name, so the name is only looked up.
void create_sampling_route(const TrainingCall& call) {
  const TrainingJson json = call.json();
  if (const std::string base = text_field(json, "base_model"); !base.empty()) {
    if (is_given(json, "training_run")) fail_value("training_run", "is given beside base_model, allowed is one of the two");
    check_base_model(call, base);
    return call.answer(TrainingJson::object());
  }
  const std::string name = required_text(json, "training_run"), run = name.substr(name.rfind('/') + 1);
  for (const CheckpointRecord& r : call.service.checkpoints().all(call.owner))
    if (r.run() == run) return call.answer(TrainingJson::object());
  throw RequestError(ErrorCode::not_found, "training_run", fmt::format("the training run '{}' is not there, or has no checkpoint", shown(name)), 404);
}
}  // namespace

void add_serverless_routes(TrainingRoutes& routes) {
  routes.post("create_sampling_route", known_fields({"base_model", "training_run"}), create_sampling_route);
  const std::string all = fmt::format("/v1/accounts/{{account}}/{}", kSessions), one = all + "/{session}";
  routes.add_at_root(
      "GET", all,
      [](const TrainingCall& call) {
        TrainingJson rows = TrainingJson::array();
        for (const SessionRecord& s : call.service.sessions().all(call.owner))
          if (s.id.starts_with("ts-")) rows.push_back(session_json(call, s));
        answer_page(call, kSessions, rows);
      },
      page_query());
  routes.add_at_root("GET", one, [](const TrainingCall& call) { call.answer(session_json(call, serverless_session(call))); });
  routes.add_at_root(
      "GET", one + "/checkpoints",
      [](const TrainingCall& call) {
        const SessionRecord session = serverless_session(call);
        TrainingJson rows = TrainingJson::array();
        for (const CheckpointRecord& r : call.service.checkpoints().all(call.owner))
          if (r.session == session.id) rows.push_back(checkpoint_row(resource_name(call, kSessions, session.id), r));
        answer_page(call, "trainingSessionCheckpoints", rows);
      },
      page_query());
  routes.add_at_root("DELETE", one, [](const TrainingCall& call) {
    const SessionRecord session = serverless_session(call);
    call.service.session_life().finish(call.owner, session.id, "finished: deleted", {});
    call.service.model_life().drop_of_session(call.owner, session.id);  // its checkpoints stay
    call.answer(TrainingJson::object());
  });
}

}  // namespace lockstep
