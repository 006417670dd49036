// Lists of training runs, checkpoints and sessions.
#include <charconv>
#include <set>
#include <sstream>

#include "api/errors.h"
#include "api/tinker/tinker_routes.h"
#include "base/ascii.h"
#include "base/choice.h"

namespace lockstep {
namespace {

std::string parameter(const TrainingCall& call, std::string_view name) { return std::string(call.request.parameter(name)); }
std::string path_of(const TrainingCall& call) {
  return fmt::format("tinker://{}/{}/{}", parameter(call, "run"), parameter(call, "kind"), parameter(call, "name"));
}

TrainingJson checkpoint_json(const CheckpointRecord& r) {
  TrainingJson json{{"checkpoint_id", r.id()},
                    {"checkpoint_type", r.kind == "weights"           ? "training"
                                        : r.kind == "sampler_weights" ? "sampler"
                                                                      : "external"},
                    {"time", iso_time(r.created)},
                    {"tinker_path", r.path()},
                    {"size_bytes", r.bytes},
                    {"public", r.is_public},
                    {"user_metadata", r.user_metadata.value()}};
  if (r.expires) json["expires_at"] = iso_time(*r.expires);
  return json;
}

// The run of a copied checkpoint has no model, only its checkpoints.
ModelRecord run_of(const TrainingCall& call, const std::string& id) {
  const std::vector<CheckpointRecord> all = call.service.checkpoints().all(call.owner, id);
  const bool living = all.empty() || !id.starts_with("copy-");
  if (living) return call.service.models().find(call.owner, id);
  ModelRecord model;
  model.id = id;
  model.owner = call.owner;
  model.settings = all.front().settings;
  model.created = model.used = all.back().created;
  return model;
}

TrainingJson run_json(TrainingService& service, const std::string& owner, const ModelRecord& model) {
  TrainingJson json{{"training_run_id", model.id},
                    {"base_model", model.settings.base_model},
                    {"model_owner", owner},
                    {"is_lora", model.settings.rank > 0},
                    {"lora_rank", model.settings.rank},
                    {"last_request_time", iso_time(model.used)},
                    {"corrupted", false},
                    {"user_metadata", model.settings.user_metadata.value()}};
  for (const CheckpointRecord& r : service.checkpoints().all(owner, model.id))
    json[r.kind == "weights" ? "last_checkpoint" : "last_sampler_checkpoint"] = checkpoint_json(r);
  return json;
}

struct CatalogPage {
  std::size_t begin = 0, count = 0;
};
// The page that ?limit=&offset= selects of `total` rows.
CatalogPage page_of(const TrainingCall& call, std::size_t total) {
  const auto number = [&](const char* name, std::size_t standard, std::size_t most) {
    const std::optional<std::string> text = call.request.query_value(name);
    if (!text || text->empty()) return standard;
    std::size_t value = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (error != std::errc() || end != text->data() + text->size() || value > most)
      fail_value(name, fmt::format("is '{}', allowed is 0 to {}", shown(*text), most));
    return value;
  };
  CatalogPage page{std::min(number("offset", 0, SIZE_MAX / 2), total), 0};
  page.count = std::min(number("limit", 100, 10'000), total - page.begin);
  return page;
}
// A key sees only what it owns, so both scopes of the package mean the same.
void check_scope(const TrainingCall& call) {
  if (const std::string scope = call.request.query_value("access_scope").value_or("owned"); scope != "owned" && scope != "accessible")
    fail_value("access_scope", fmt::format("is '{}', allowed are owned and accessible", shown(scope)));
}
TrainingJson cursor(const CatalogPage& page, std::size_t total) { return {{"offset", page.begin}, {"limit", page.count}, {"total_count", total}}; }

template <class T, class F>
TrainingJson listed(const std::vector<T>& all, const CatalogPage& page, const F& each) {
  TrainingJson out = TrainingJson::array();
  for (std::size_t i = page.begin; i < page.begin + page.count; ++i) out.push_back(each(all[i]));
  return out;
}

void weights_info(const TrainingCall& call) {
  const CheckpointRecord r = call.service.checkpoints().find(call.owner, required_text(call.json(), "tinker_path"));
  const ModelSettings& s = r.settings;
  call.answer({{"base_model", s.base_model},
               {"is_lora", s.rank > 0},
               {"lora_rank", s.rank},
               {"train_unembed", s.train_unembed},
               {"train_mlp", s.train_mlp},
               {"train_attn", s.train_attn},
               {"optimizer_config", optimizer_config(s)}});
}

TrainingJson status_json(const SessionRecord& s) {
  if (s.status == "active") return {{"type", "active"}};
  const std::size_t colon = s.status.find(": ");  // "finished: success"
  TrainingJson json{{"type", "client_finished"}, {"reason", {{"type", colon == std::string::npos ? std::string("success") : s.status.substr(colon + 2)}}}};
  if (!s.finish_detail.empty()) json["detail"] = s.finish_detail;
  return json;
}

// Whether each of the words is somewhere in the name.
bool named_like(const std::string& name, const std::string& words) {
  const std::string lower = ascii_lower(name);
  std::istringstream stream(ascii_lower(words));
  for (std::string word; stream >> word;)
    if (lower.find(word) == std::string::npos) return false;
  return true;
}

bool holds_text(const TrainingJson& list, const std::string& text) {
  return list.is_array() && std::any_of(list.begin(), list.end(), [&](const TrainingJson& one) { return one.is_string() && one.get<std::string>() == text; });
}

void check_kind(const TrainingJson& json, const std::string& where, const std::vector<std::string>& allowed) {
  const std::string type = text_field(json, "type");
  if (!type.empty() && std::find(allowed.begin(), allowed.end(), type) == allowed.end())
    fail_value(where + ".type", fmt::format("is '{}', {}", shown(type), allowed_are(type, allowed)));
}
// Refuses an unknown kind in a search, which would find rows that were not asked for.
void check_kinds(const TrainingJson& json) {
  const TrainingJson owner = object_field(json, "owner");
  check_kind(owner, "owner", {"own", "accessible", "user"});
  if (!list_field(owner, "owner_urns").is_null() && text_field(owner, "type") != "user") fail_value("owner.owner_urns", "is given with another type than user");
  std::size_t number = 0;
  for (const TrainingJson& query : list_field(json, "statuses")) {
    const std::string where = fmt::format("statuses[{}]", number++);
    if (!query.is_object()) fail_value(where, fmt::format("is {}, allowed is an object", describe_json(query)));
    check_kind(query, where, {"active", "cancelled", "failed", "client_finished"});
    if (!list_field(query, "reasons").is_null() && text_field(query, "type") != "client_finished")
      fail_value(where + ".reasons", "is given with another type than client_finished");
  }
}

bool wanted_session(const SessionRecord& s, const TrainingJson& json) {
  const std::string id = text_field(json, "session_id"), name = text_field(json, "display_name");
  if ((!id.empty() || !name.empty()) && !(s.id == id || (!name.empty() && named_like(s.display_name, name)))) return false;
  if (!s.user_metadata.has_members_of(object_field(json, "user_metadata"))) return false;
  if (const TrainingJson projects = list_field(json, "project_ids"); !projects.is_null() && !holds_text(projects, s.project)) return false;
  const TrainingJson statuses = list_field(json, "statuses"), status = status_json(s);
  return statuses.is_null() || std::any_of(statuses.begin(), statuses.end(), [&](const TrainingJson& query) {
           if (!query.is_object() || text_field(query, "type") != text_field(status, "type")) return false;
           return !query.contains("reasons") || query["reasons"].is_null() || holds_text(query["reasons"], text_field(object_field(status, "reason"), "type"));
         });
}

// Newest first. Sessions of other owners are never found, even if the request names them.
void search_sessions(const TrainingCall& call) {
  const TrainingJson json = call.json();
  for (const char* name : {"project_ids", "statuses"}) list_field(json, name);
  check_kinds(json);
  const std::int64_t limit = integer_field(json, "limit", 50);
  if (limit < 1 || limit > 200) fail_value("limit", fmt::format("is {}, allowed is 1 to 200", limit));
  const TrainingJson cursor = object_field(json, "cursor"), owner = object_field(json, "owner");
  std::vector<SessionRecord> all = call.service.sessions().all(call.owner);
  if (text_field(owner, "type", "own") == "user" && !(owner.contains("owner_urns") && holds_text(owner["owner_urns"], call.owner))) all.clear();
  std::erase_if(all, [&](const SessionRecord& s) { return !wanted_session(s, json); });
  std::size_t begin = 0;
  if (const std::string last = text_field(cursor, "last_session_id"); !last.empty()) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const SessionRecord& s) { return s.id == last; });
    begin = found == all.end() ? all.size() : static_cast<std::size_t>(found - all.begin()) + 1;
  }
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> kept;  // session -> checkpoints, their bytes
  for (const CheckpointRecord& r : call.service.checkpoints().all(call.owner)) {
    auto& [count, bytes] = kept[r.model.substr(0, r.model.find(':'))];
    ++count;
    bytes += r.bytes;
  }
  TrainingJson out{{"sessions", TrainingJson::array()}};
  const std::size_t end = std::min(all.size(), begin + static_cast<std::size_t>(limit));
  for (std::size_t i = begin; i < end; ++i) {
    const SessionRecord& s = all[i];
    TrainingJson one{{"session_id", s.id},       {"created_at", iso_time(s.created)},       {"owner", call.owner},
                     {"project_id", s.project},  {"checkpoints_count", kept[s.id].first},   {"checkpoint_storage_bytes", kept[s.id].second},
                     {"status", status_json(s)}, {"user_metadata", s.user_metadata.value()}};
    if (!s.display_name.empty()) one["display_name"] = s.display_name;
    out["sessions"].push_back(std::move(one));
  }
  if (end < all.size()) out["next_cursor"] = {{"last_created_at", iso_time(all[end - 1].created)}, {"last_session_id", all[end - 1].id}};
  call.answer(out);
}

}  // namespace

void add_catalog_routes(TrainingRoutes& routes) {
  routes.post("weights_info", known_fields({"tinker_path"}), weights_info);
  routes.add_with_query("GET", "training_runs", known_query({"limit", "offset", "project_id", "access_scope"}), [](const TrainingCall& call) {
    check_scope(call);
    std::vector<ModelRecord> all = call.service.models().all(call.owner);
    const std::optional<std::string> project = call.request.query_value("project_id");
    if (project && !project->empty())
      std::erase_if(all, [&](const ModelRecord& m) { return call.service.sessions().find(call.owner, m.session).project != *project; });
    if (project && !project->empty()) {  // and runs that are copies alone, whose project is their own
      std::set<std::string> copies;
      for (const CheckpointRecord& r : call.service.checkpoints().all(call.owner))
        if (r.project == *project && copies.insert(r.model).second) all.push_back(run_of(call, r.model));
    }
    const CatalogPage page = page_of(call, all.size());
    call.answer({{"training_runs", listed(all, page, [&](const ModelRecord& m) { return run_json(call.service, call.owner, m); })},
                 {"cursor", cursor(page, all.size())}});
  });
  routes.add_with_query("GET", "training_runs/{run}", known_query({"access_scope"}), [](const TrainingCall& call) {
    check_scope(call);
    call.answer(run_json(call.service, call.owner, run_of(call, parameter(call, "run"))));
  });
  routes.add("GET", "training_runs/{run}/checkpoints", [](const TrainingCall& call) {
    const std::string run = parameter(call, "run");
    const std::vector<CheckpointRecord> all = call.service.checkpoints().all(call.owner, run);
    if (all.empty()) call.service.models().find(call.owner, run);  // an error where there is no such run
    call.answer({{"checkpoints", listed(all, {0, all.size()}, checkpoint_json)}});
  });
  routes.add_with_query("GET", "checkpoints", known_query({"limit", "offset"}), [](const TrainingCall& call) {
    const std::vector<CheckpointRecord> all = call.service.checkpoints().all(call.owner);
    const CatalogPage page = page_of(call, all.size());
    call.answer({{"checkpoints", listed(all, page, checkpoint_json)}, {"cursor", cursor(page, all.size())}});
  });
  const std::string one = "training_runs/{run}/checkpoints/{kind}/{name}";
  routes.add("DELETE", one, [](const TrainingCall& call) {
    call.service.checkpoints().remove(call.owner, path_of(call));
    call.answer(TrainingJson::object());
  });
  for (const bool is_public : {true, false})
    routes.add(is_public ? "POST" : "DELETE", one + "/publish", [is_public](const TrainingCall& call) {
      call.json();  // has no field
      call.service.checkpoints().change(call.owner, path_of(call), [&](CheckpointRecord& r) { r.is_public = is_public; });
      call.answer(TrainingJson::object());
    });
  routes.add("PUT", one + "/ttl", known_fields({"ttl_seconds"}), [](const TrainingCall& call) {
    const std::optional<double> seconds = optional_number(call.json(), "ttl_seconds");
    check_ttl(seconds);
    call.service.checkpoints().change(call.owner, path_of(call),
                                      [&](CheckpointRecord& r) { r.expires = seconds ? std::optional(unix_now() + *seconds) : std::nullopt; });
    call.answer(TrainingJson::object());
  });
  routes.add_with_query("GET", "sessions", known_query({"limit", "offset", "access_scope"}), [](const TrainingCall& call) {
    check_scope(call);
    const std::vector<SessionRecord> all = call.service.sessions().all(call.owner);
    const CatalogPage page = page_of(call, all.size());
    call.answer({{"sessions", listed(all, page, [](const SessionRecord& s) { return TrainingJson(s.id); })}});
  });
  routes.add_with_query("GET", "sessions/{session}", known_query({"access_scope"}), [](const TrainingCall& call) {
    check_scope(call);
    const SessionRecord session = call.service.sessions().find(call.owner, parameter(call, "session"));
    TrainingJson runs = TrainingJson::array(), samplers = TrainingJson::array();
    for (const ModelRecord& m : call.service.models().all(call.owner))
      if (m.session == session.id) runs.push_back(m.id);
    for (const SamplerRecord& s : call.service.samplers().all(call.owner, session.id)) samplers.push_back(s.id);
    call.answer(
        {{"training_run_ids", runs}, {"sampler_ids", samplers}, {"user_metadata", session.user_metadata.value()}, {"display_name", session.display_name}});
  });
  JsonFields search = known_fields({"session_id", "project_ids", "user_metadata", "display_name", "limit"});
  search.inside("owner", known_fields({"type", "owner_urns"}));
  search.each("statuses", known_fields({"type", "reasons"}));
  search.inside("cursor", known_fields({"last_session_id"}, {"last_created_at"}));
  routes.post("sessions/search", std::move(search), search_sessions);
  routes.add("PUT", "sessions/{session}/project", known_fields({"project_id"}), [](const TrainingCall& call) {
    call.service.sessions().assign(call.owner, parameter(call, "session"), required_text(call.json(), "project_id"));
    call.answer(TrainingJson::object());
  });
  routes.add("GET", "sessions/{session}/trace_export", [](const TrainingCall& call) {
    call.service.sessions().find(call.owner, parameter(call, "session"));
    call.answer({{"status", "failed"}, {"error", "this server keeps no traces of sessions"}});
  });
  routes.add("GET", "list_checkpoints", [](const TrainingCall& call) {
    TrainingJson names = TrainingJson::array();
    const std::string job = parameter(call, "job");
    for (const CheckpointRecord& r : job.empty() ? call.service.checkpoints().all(call.owner) : call.service.checkpoints().of_job(call.owner, job))
      if (r.kind == "weights") names.push_back(r.reference());
    call.answer({{"checkpoints", names}});
  });
}

}  // namespace lockstep
