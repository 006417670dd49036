// Sessions, their custom losses, configuration and results: the part of the protocol that has nothing to do with models.
#include <algorithm>

#include "api/errors.h"
#include "api/tinker/tinker_routes.h"
#include "base/error.h"
#include "base/hash.h"

namespace lockstep {
namespace {
constexpr double kHoldSeconds = 25;  // clients give up after 45

void create_session(const TrainingCall& call) {
  const TrainingJson json = call.json();
  SessionRecord wanted;
  wanted.id = call.request.path.starts_with("/training/v1/serverless") ? "ts-" : "s-";
  wanted.job = call.request.parameter("job");
  wanted.project = text_field(json, "project_id");
  wanted.display_name = text_field(json, "display_name");
  if (const TrainingJson tags = list_field(json, "tags"); !tags.is_null()) wanted.tags = ClientJson(tags);
  wanted.user_metadata = ClientJson(call.metadata_field(json, "user_metadata"));
  wanted.idempotency_key = call.text_header("x-idempotency-key");
  call.answer({{"session_id", call.service.session_life().create(call.owner, wanted)}, {"type", "create_session"}});
}

// The client's message, and the request that ended the session if it names one.
std::string finish_detail(const TrainingJson& json, const TrainingJson& reason) {
  std::string detail = text_field(json, "detail");
  const std::string id = text_field(reason, "request_id"), kind = text_field(reason, "request_type");
  if (!id.empty() || !kind.empty()) detail += fmt::format("{}{}{}{}", detail.empty() ? "" : "; ", kind.empty() ? "request" : kind, id.empty() ? "" : " ", id);
  return detail;
}

void finish_session(const TrainingCall& call) {
  const TrainingJson json = call.json();
  const TrainingJson reason = object_field(json, "reason");
  call.service.session_life().finish(call.owner, std::string(call.request.parameter("session")), "finished: " + text_field(reason, "type", "success"),
                                     finish_detail(json, reason));
  call.answer(TrainingJson::object());
}

void create_custom_loss(const TrainingCall& call) {
  TrainingJson json = call.json();
  TrainingJson document{{"name", text_field(json, "name", "loss")}, {"inputs", nullptr}, {"graph", nullptr}};
  const std::string session = required_text(json, "session_id");
  const std::int64_t number = required_integer(json, "custom_loss_seq_id");
  // Moved: a graph is most of a body, and an object that grows copies what it holds.
  for (const char* field : {"inputs", "graph"})
    if (const auto found = json.find(field); found != json.end()) document[field] = std::move(*found);
  call.answer_future(call.service.custom_losses().create(call.owner, session, number, std::move(document), [](const std::string& id) {
    return json_outcome({{"type", "create_custom_loss"}, {"loss_id", id}});
  }));
}

// Why a request has no result yet. Sent only after a poll has been held for its whole time: clients log a line for each.
TrainingJson queue_state(TrainingService& service, const std::string& owner, const std::string& id, const Executor::Use& before) {
  const auto told = [](const char* state, const std::string& reason) {
    return TrainingJson{{"queue_state", state}, {"queue_state_reason", reason.empty() ? TrainingJson() : TrainingJson(reason)}};
  };
  if (const std::string place = service.resting().why_paused(owner, id); !place.empty()) return told("paused_capacity", place);
  if (const std::string missing = service.lanes().missing_before(owner, id); !missing.empty()) return told("active", missing);
  const std::string others = service.waiting_reasons().without_share(owner, id, before);
  return told(others.empty() ? "active" : "paused_rate_limit", others);
}

void retrieve(const TrainingCall& call) {
  const std::string id = required_text(call.json(), "request_id");
  const Executor::Use before = call.service.waiting_reasons().device_use(call.owner, id);
  const bool known = call.service.futures().wait(
      id, call.owner, kHoldSeconds, [out = call.out, &service = call.service, owner = call.owner, id, before](const Outcome* outcome) {
        if (!outcome) {
          out->send({408, "application/json", queue_state(service, owner, id, before).dump(), {}});
        } else if (outcome->failed()) {
          out->send({200,
                     "application/json",
                     TrainingJson{{"error", outcome->message}, {"category", outcome->category}}.dump(-1, ' ', false, TrainingJson::error_handler_t::replace),
                     {}});
        } else {
          out->send({200, outcome->content_type, outcome->bytes, {}});
        }
      });
  // 410: a sampling client then samples again, a training client stops. The answer does not tell whether the request is another key's.
  if (!known)
    throw RequestError(ErrorCode::not_found, "request_id",
                       fmt::format("there is no request '{}'; a server that was killed does not know what was under way", shown(id)), 410);
}

// Long poll for all results that a sampler's client waits for.
void retrieve_many(const TrainingCall& call) {
  const TrainingJson json = call.json();
  const TrainingJson target = object_field(json, "target");
  if (const std::string type = text_field(target, "type", "sampling_session"); type != "sampling_session")
    fail_value("target.type", fmt::format("is '{}', allowed is sampling_session", shown(type)));
  const std::string stream =
      call.service.sampling().feed_of(call.owner, required_text(target, "sampling_session_id"), integer_field(target, "cloned_sampler_id", 0));
  const double seconds = std::clamp(number_field(json, "timeout", kHoldSeconds), 0.0, kHoldSeconds);
  call.service.feed().wait(stream, integer_field(json, "prev_cursor", 0), seconds, [out = call.out](const FeedPage& page) {
    TrainingJson completions = TrainingJson::array();
    for (const FinishedFuture& f : page.finished) {
      if (f.failed) completions.push_back({{"state", "failed"}, {"request_id", f.id}});
      else completions.push_back({{"state", "finished"}, {"request_id", f.id}, {"response_payload_uncompressed_size", f.bytes}});
    }
    out->send({200, "application/json", TrainingJson{{"completions", completions}, {"cursor", page.cursor}}.dump(), {}});
  });
}

void cancel_future(const TrainingCall& call) {
  call.service.sampling().cancel(call.owner, required_text(call.json(), "request_id"));
  call.out->send({204, {}, {}, {}});
}

// Exchanges a key for a token. A token is answered with itself, so that it cannot extend its own life.
void exchange_key(const TrainingCall& call, const TokenSigner& tokens) {
  call.json();  // has no field
  std::string_view credential = call.request.header("x-api-key");
  if (credential.empty()) credential = call.request.header("authorization");
  credential.remove_prefix(std::min(credential.size(), credential.rfind(' ') + 1));
  call.answer({{"jwt", TokenSigner::is_token(credential) ? std::string(credential)
                                                         : tokens.sign(call.owner, static_cast<std::int64_t>(unix_now()), sha256_hex(credential))}});
}
}  // namespace

void add_session_routes(TrainingRoutes& routes, const TrainingRouteOptions& options) {
  routes.add("GET", "healthz", [](const TrainingCall& call) {
    const auto job = call.service.control().jobs.find(
        call.owner, fmt::format("accounts/{}/rlorTrainerJobs/{}", call.request.parameter("account"), call.request.parameter("job")));
    const bool runs = !job || job->state == "JOB_STATE_RUNNING";
    call.answer({{"status", runs ? "ok" : job->state}}, runs ? 200 : 503);
  });
  routes.post_quick("client/config", known_fields({}, {"sdk_version"}), [wants = options.wants_tokens](const TrainingCall& call) {
    call.json();
    call.answer({{"pjwt_auth_enabled", wants}, {"custom_loss_server_side", call.service.custom_losses().run_here()}});
  });
  if (options.tokens) routes.post("auth/token", JsonFields(), [tokens = options.tokens](const TrainingCall& call) { exchange_key(call, *tokens); });
  routes.post_quick("client/dynamic_config", known_fields({}, {"sdk_version"}), [](const TrainingCall& call) {
    call.json();
    call.answer({{"refresh_interval_sec", 300}, {"sample_cancel_enabled", true}, {"sample_cancel_max_batch_size", 64}});
  });
  routes.add("GET", "get_server_capabilities", [](const TrainingCall& call) {
    TrainingJson models = TrainingJson::array();
    for (const std::string& name : call.service.base().names)
      models.push_back(
          {{"model_name", name}, {"max_context_length", call.service.base().opened.runtime->max_positions}, {"trainable", true}, {"sampleable", true}});
    call.answer({{"supported_models", models}});
  });
  routes.post("create_session", known_fields({"tags", "user_metadata", "project_id", "display_name"}, {"sdk_version", "type"}), create_session);
  routes.post_quick("session_heartbeat", known_fields({"session_id"}, {"type"}), [](const TrainingCall& call) {
    call.service.session_life().hear(call.owner, required_text(call.json(), "session_id"));
    call.answer({{"type", "session_heartbeat"}});
  });
  JsonFields finish = known_fields({"detail"});
  finish.inside("reason", known_fields({"type", "request_id", "request_type"}));
  routes.post("sessions/{session}/finish", std::move(finish), finish_session);
  routes.post_quick("telemetry", known_fields({}, {"session_id", "events", "platform", "sdk_version", "process_uuid", "type"}), [](const TrainingCall& call) {
    call.json();
    call.answer({{"status", "accepted"}});
  });
  JsonFields loss = known_fields({"session_id", "custom_loss_seq_id", "name"}, {"type"}), graph = known_fields({"format"});
  graph.each("nodes", known_fields({"op", "name", "target", "args", "kwargs"}));
  loss.inside("graph", std::move(graph));
  loss.each("inputs", known_fields({"name", "rank"}));
  routes.post("create_custom_loss", std::move(loss), create_custom_loss);
  routes.post_quick("retrieve_future", known_fields({"request_id"}, {"allow_metadata_only"}), retrieve);
  JsonFields many = known_fields({"prev_cursor", "timeout"}, {"retrieved_request_ids"});
  many.inside("target", known_fields({"type", "sampling_session_id", "cloned_sampler_id"}));
  routes.post_quick("retrieve_futures", std::move(many), retrieve_many);
  routes.post_quick("cancel_future", known_fields({"request_id"}), cancel_future);
}

}  // namespace lockstep
