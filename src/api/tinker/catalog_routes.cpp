// What there is: training runs, checkpoints, sessions.
#include <charconv>

#include "api/errors.h"
#include "api/tinker/tinker_routes.h"

namespace lockstep {
namespace {

std::string parameter(const TrainingCall& call, std::string_view name) { return std::string(call.request.parameter(name)); }
std::string path_of(const TrainingCall& call) { return fmt::format("tinker://{}/{}/{}", parameter(call, "run"), parameter(call, "kind"), parameter(call, "name")); }

TrainingJson checkpoint_json(const CheckpointRecord& r) {
  TrainingJson json{{"checkpoint_id", r.id()},
                    {"checkpoint_type", r.kind == "weights" ? "training" : r.kind == "sampler_weights" ? "sampler" : "external"},
                    {"time", iso_time(r.created)},
                    {"tinker_path", r.path()},
                    {"size_bytes", r.bytes},
                    {"public", r.is_public},
                    {"user_metadata", r.user_metadata}};
  if (r.expires) json["expires_at"] = iso_time(*r.expires);
  return json;
}

TrainingJson run_json(TrainingService& service, const std::string& owner, const ModelRecord& model) {
  TrainingJson json{{"training_run_id", model.id},     {"base_model", model.settings.base_model}, {"model_owner", owner},
                    {"is_lora", model.settings.rank > 0}, {"lora_rank", model.settings.rank},      {"last_request_time", iso_time(model.used)},
                    {"corrupted", false},                 {"user_metadata", model.settings.user_metadata}};
  for (const CheckpointRecord& r : service.checkpoints(owner, model.id)) json[r.kind == "weights" ? "last_checkpoint" : "last_sampler_checkpoint"] = checkpoint_json(r);
  return json;
}

struct CatalogPage {
  std::size_t begin = 0, count = 0;
};
// ?limit=&offset= over `total` things.
CatalogPage page_of(const TrainingCall& call, std::size_t total) {
  const auto number = [&](const char* name, std::size_t standard, std::size_t most) {
    const std::optional<std::string> text = call.request.query_value(name);
    if (!text || text->empty()) return standard;
    std::size_t value = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (error != std::errc() || end != text->data() + text->size() || value > most) fail_value(name, fmt::format("is '{}', allowed is 0 to {}", shown(*text), most));
    return value;
  };
  CatalogPage page{std::min(number("offset", 0, SIZE_MAX / 2), total), 0};
  page.count = std::min(number("limit", 100, 10'000), total - page.begin);
  return page;
}
TrainingJson cursor(const CatalogPage& page, std::size_t total) { return {{"offset", page.begin}, {"limit", page.count}, {"total_count", total}}; }

template <class T, class F>
TrainingJson listed(const std::vector<T>& all, const CatalogPage& page, const F& each) {
  TrainingJson out = TrainingJson::array();
  for (std::size_t i = page.begin; i < page.begin + page.count; ++i) out.push_back(each(all[i]));
  return out;
}

void weights_info(const TrainingCall& call) {
  const CheckpointRecord r = call.service.checkpoint(call.owner, required_text(call.json(), "tinker_path"));
  const ModelSettings& s = r.settings;
  call.answer({{"base_model", s.base_model}, {"is_lora", s.rank > 0}, {"lora_rank", s.rank}, {"train_unembed", s.train_unembed}, {"train_mlp", s.train_mlp}, {"train_attn", s.train_attn},
               {"optimizer_config", optimizer_config(s)}});
}

void search_sessions(const TrainingCall& call) {
  const TrainingJson json = call.json();
  const std::string id = text_field(json, "session_id"), name = text_field(json, "display_name");
  const TrainingJson metadata = object_field(json, "user_metadata");
  const std::int64_t limit = std::clamp<std::int64_t>(integer_field(json, "limit", 100), 0, 10'000);
  TrainingJson found = TrainingJson::array();
  for (const SessionRecord& s : call.service.sessions(call.owner)) {
    if ((!id.empty() && s.id != id) || (!name.empty() && s.display_name.find(name) == std::string::npos)) continue;
    bool same = true;
    for (const auto& [key, value] : metadata.items()) same = same && s.user_metadata.contains(key) && s.user_metadata[key] == value;
    if (!same || static_cast<std::int64_t>(found.size()) >= limit) continue;
    std::int64_t checkpoints = 0;
    for (const CheckpointRecord& r : call.service.checkpoints(call.owner)) checkpoints += r.model.starts_with(s.id + ":");
    found.push_back({{"session_id", s.id}, {"created_at", iso_time(s.created)}, {"owner", call.owner}, {"project_id", s.project}, {"checkpoints_count", checkpoints},
                     {"status", {{"type", s.status == "active" ? "active" : "client_finished"}}}, {"display_name", s.display_name}});
  }
  call.answer({{"sessions", found}});
}

}  // namespace

void add_catalog_routes(TrainingRoutes& routes) {
  routes.post("weights_info", weights_info);
  routes.add("GET", "training_runs", [](const TrainingCall& call) {
    const std::vector<ModelRecord> all = call.service.models(call.owner);
    const CatalogPage page = page_of(call, all.size());
    call.answer({{"training_runs", listed(all, page, [&](const ModelRecord& m) { return run_json(call.service, call.owner, m); })}, {"cursor", cursor(page, all.size())}});
  });
  routes.add("GET", "training_runs/{run}", [](const TrainingCall& call) { call.answer(run_json(call.service, call.owner, call.service.model(call.owner, parameter(call, "run")))); });
  routes.add("GET", "training_runs/{run}/checkpoints", [](const TrainingCall& call) {
    const std::string run = parameter(call, "run");
    const std::vector<CheckpointRecord> all = call.service.checkpoints(call.owner, run);
    if (all.empty()) call.service.model(call.owner, run);  // an error where there is no such run
    call.answer({{"checkpoints", listed(all, {0, all.size()}, checkpoint_json)}});
  });
  routes.add("GET", "checkpoints", [](const TrainingCall& call) {
    const std::vector<CheckpointRecord> all = call.service.checkpoints(call.owner);
    const CatalogPage page = page_of(call, all.size());
    call.answer({{"checkpoints", listed(all, page, checkpoint_json)}, {"cursor", cursor(page, all.size())}});
  });
  const std::string one = "training_runs/{run}/checkpoints/{kind}/{name}";
  routes.add("DELETE", one, [](const TrainingCall& call) {
    call.service.remove_checkpoint(call.owner, path_of(call));
    call.answer(TrainingJson::object());
  });
  for (const bool is_public : {true, false})
    routes.add(is_public ? "POST" : "DELETE", one + "/publish", [is_public](const TrainingCall& call) {
      call.service.change_checkpoint(call.owner, path_of(call), [&](CheckpointRecord& r) { r.is_public = is_public; });
      call.answer(TrainingJson::object());
    });
  routes.add("PUT", one + "/ttl", [](const TrainingCall& call) {
    const std::optional<double> seconds = optional_number(call.json(), "ttl_seconds");
    if (seconds && !(*seconds >= 0 && *seconds <= kLongestTtl)) fail_value("ttl_seconds", fmt::format("is {}, allowed is 0 to {}", *seconds, kLongestTtl));
    call.service.change_checkpoint(call.owner, path_of(call), [&](CheckpointRecord& r) { r.expires = seconds ? std::optional(unix_now() + *seconds) : std::nullopt; });
    call.answer(TrainingJson::object());
  });
  routes.add("GET", "sessions", [](const TrainingCall& call) {
    const std::vector<SessionRecord> all = call.service.sessions(call.owner);
    const CatalogPage page = page_of(call, all.size());
    call.answer({{"sessions", listed(all, page, [](const SessionRecord& s) { return TrainingJson(s.id); })}});
  });
  routes.add("GET", "sessions/{session}", [](const TrainingCall& call) {
    const SessionRecord session = call.service.session(call.owner, parameter(call, "session"));
    TrainingJson runs = TrainingJson::array(), samplers = TrainingJson::array();
    for (const ModelRecord& m : call.service.models(call.owner))
      if (m.session == session.id) runs.push_back(m.id);
    for (const SamplerRecord& s : call.service.samplers(call.owner, session.id)) samplers.push_back(s.id);
    call.answer({{"training_run_ids", runs}, {"sampler_ids", samplers}, {"user_metadata", session.user_metadata}, {"display_name", session.display_name}});
  });
  routes.post("sessions/search", search_sessions);
  routes.add("GET", "list_checkpoints", [](const TrainingCall& call) {
    TrainingJson names = TrainingJson::array();
    const std::string job = parameter(call, "job");
    for (const CheckpointRecord& r : job.empty() ? call.service.checkpoints(call.owner) : call.service.checkpoints_of_job(call.owner, job))
      if (r.kind == "weights") names.push_back(r.reference());
    call.answer({{"checkpoints", names}});
  });
}

}  // namespace lockstep
