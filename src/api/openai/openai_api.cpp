#include "api/openai/openai_api.h"

#include <algorithm>
#include <chrono>

#include "api/body_budget.h"
#include "api/errors.h"
#include "api/json_fields.h"
#include "api/openai/chat_answer.h"
#include "api/openai/completion_answer.h"
#include "api/openai/embedding_answer.h"
#include "api/openai/held_streams.h"
#include "api/openai/requested_model.h"
#include "api/openai/response_answer.h"
#include "api/openai/sleeping_model.h"
#include "api/openai/token_routes.h"
#include "api/worker.h"
#include "base/ascii.h"
#include "base/client_work.h"
#include "serving/context_limit.h"
#include "serving/model_name.h"

namespace lockstep {
namespace {
std::int64_t unix_seconds() { return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count(); }

ApiResponse json_response(const Json& json) { return {200, "application/json", json.dump(-1, ' ', false, Json::error_handler_t::replace), {}}; }

// A web page can make a browser send any body to a server on the user's machine, but not with a JSON content type unless CORS allows it.
void require_json(const ApiRequest& request) {
  const std::string_view type = trimmed(std::string_view(request.content_type).substr(0, request.content_type.find(';')));
  if (ascii_lower(type) != "application/json")
    throw RequestError(ErrorCode::invalid_argument, {}, fmt::format("content-type is '{}', allowed is application/json", type.substr(0, 80)), 415,
                       "unsupported_media_type");
}

// Whether a body may take too long to decode on the server's own thread: long texts, schemas, and stored conversations. (The backslash:
// a key may be written with escapes.)
bool takes_long(const ApiRequest& request) {
  constexpr std::size_t kLongBody = 32 << 10;
  if (request.body.size() > kLongBody) return true;
  for (const char* word : {"response_format", "json_schema", "tool_choice", "strict", "previous_response_id", "\\u"})
    if (request.body.find(word) != std::string::npos) return true;
  return false;
}

constexpr std::size_t kMostLongAnswers = 1024;

// State that all models of a server share.
struct OpenAiCommons {
  std::shared_ptr<const Deployments> deployments;
  std::shared_ptr<StoredResponses> kept;
  std::int64_t created;
  std::weak_ptr<Worker> writer;
  std::weak_ptr<HeldStreams> streams;
};

Json service_json(const GenerationService& service, std::int64_t created) {
  return {{"id", service.model().name()},
          {"object", "model"},
          {"created", created},
          {"owned_by", "lockstep"},
          {"chat", service.model().has_chat()},
          {"generation_config", to_json(service.model().defaults())},
          {"max_model_len", longest_request(service.limits())},
          {"weights_version", service.weights().version()},
          {"profile", service.model().profile_digest()},
          {"profile_name", service.model().profile_name()}};
}

// The description of a model that is not in memory.
Json asleep_json(const DeploymentLine& line, std::int64_t created) {
  return {{"id", line.name}, {"object", "model"}, {"created", created}, {"owned_by", "lockstep"}, {"asleep", true}};
}

Json adapter_json(const GenerationService& service, const NamedAdapter& adapter, std::int64_t created) {
  Json json = service_json(service, created);
  json["id"] = adapter.name;
  json["created"] = static_cast<std::int64_t>(adapter.loaded);
  json["weights_version"] = adapter.weights->version;
  json["parent"] = service.model().name();
  json["rank"] = adapter.weights->layout->settings().rank;
  return json;
}

Json alias_json(const TrafficRule& rule, std::int64_t created) {
  Json shares = Json::object();
  for (const TrafficShare& one : rule.shares) shares[one.deployment] = one.weight;
  return {{"id", rule.alias}, {"object", "model"}, {"created", created}, {"owned_by", "lockstep"}, {"deployments", std::move(shares)}};
}

// The API over one of the models, for one request.
class ModelApi {
 public:
  // `model`: replaces the request's `model` field; empty: the field counts.
  ModelApi(const OpenAiCommons& commons, std::shared_ptr<GenerationService> service, std::optional<std::string> model)
      : commons_(commons), service_(std::move(service)), model_(std::move(model)) {}

  ApiResponse models(const ApiRequest&) const {
    Json all = Json::array();
    for (const DeploymentLine& line : commons_.deployments->list()) {
      const std::int64_t created = created_of(line);
      if (!line.service) {
        all.push_back(asleep_json(line, created));
        continue;
      }
      all.push_back(service_json(*line.service, created));
      for (const NamedAdapter& adapter : line.service->adapters().list()) all.push_back(adapter_json(*line.service, adapter, created));
    }
    for (const TrafficRule& rule : commons_.deployments->traffic().list()) all.push_back(alias_json(rule, commons_.created));
    return json_response({{"object", "list"}, {"data", std::move(all)}});
  }
  ApiResponse model(const ApiRequest& request) const {
    const std::string name(request.parameter("model"));
    if (const std::optional<TrafficRule> rule = commons_.deployments->traffic().find(name)) return json_response(alias_json(*rule, commons_.created));
    const CalledDeployment meant = called(*commons_.deployments, name, {});
    std::int64_t created = commons_.created;
    for (const DeploymentLine& line : commons_.deployments->list())
      if (line.name == meant.name) {
        created = created_of(line);
        if (!meant.service) return json_response(asleep_json(line, created));
      }
    if (meant.adapter.empty()) return json_response(service_json(*meant.service, created));
    require_model(*meant.service, meant.adapter);
    return json_response(adapter_json(*meant.service, *meant.service->adapters().find(meant.adapter), created));
  }
  // vLLM's routes of adapters; a folder is relative to the server's folder of adapters.
  ApiResponse load_adapter(const ApiRequest& request) const {
    std::string name, path;
    bool in_place = false;
    JsonFields fields;
    fields.text("lora_name", &name);
    fields.text("lora_path", &path);
    fields.boolean("load_inplace", &in_place);
    fields.harmless("lora_int_id");
    fields.read(parse_object(request.body));
    if (name.empty()) fail_field("lora_name", "is missing");
    if (path.empty()) fail_field("lora_path", "is missing");
    const CalledDeployment to = adapter_place(name);
    return json_response(adapter_json(*to.service, to.service->adapters().load_below_root(to.adapter, path, in_place), commons_.created));
  }
  ApiResponse unload_adapter(const ApiRequest& request) const {
    std::string name;
    JsonFields fields;
    fields.text("lora_name", &name);
    fields.harmless("lora_int_id");
    fields.read(parse_object(request.body));
    if (name.empty()) fail_field("lora_name", "is missing");
    const CalledDeployment of = adapter_place(name);
    of.service->adapters().unload(of.adapter);
    return json_response({{"id", name}, {"object", "model"}, {"deleted", true}});
  }
  ApiResponse tokenize(const ApiRequest& request) const { return {200, "application/json", tokenize_answer(*service_, request.body, model_), {}}; }
  ApiResponse detokenize(const ApiRequest& request) const { return json_response(detokenize_json(*service_, request.body, model_)); }
  void completions(const ApiRequest& request, const std::shared_ptr<Responder>& out) const {
    CompletionRequest wanted = decode_completion(request.body, defaults());
    if (model_) wanted.sampling.model = *model_;
    answer_completion(service_, std::move(wanted), request.key_name, out, commons_.writer, commons_.streams);
  }
  void chat(const ApiRequest& request, const std::shared_ptr<Responder>& out) const {
    ChatRequest wanted = decode_chat(request.body, defaults());
    if (model_) wanted.sampling.model = *model_;
    answer_chat(service_, std::move(wanted), request.key_name, out, commons_.writer, {}, commons_.streams);
  }
  void embeddings(const ApiRequest& request, const std::shared_ptr<Responder>& out) const {
    answer_embeddings(service_, request.body, request.key_name, out, commons_.writer, model_);
  }
  void create_response(const ApiRequest& request, const std::shared_ptr<Responder>& out) const { responses().create(request, out, model_); }
  ApiResponse response(const ApiRequest& request) const { return responses().retrieve(request); }
  ApiResponse delete_response(const ApiRequest& request) const { return responses().erase(request); }
  ApiResponse response_items(const ApiRequest& request) const { return responses().input_items(request); }

  // Deployments::call, whose errors get OpenAI's code model_not_found.
  static CalledDeployment called(const Deployments& deployments, const std::string& model, const std::string& who) {
    try {
      return deployments.call(model, who);
    } catch (const Error& e) {
      throw RequestError(e.code(), "model", e.message(), 0, "model_not_found");
    }
  }

 private:
  std::int64_t created_of(const DeploymentLine& line) const { return line.created > 0 ? static_cast<std::int64_t>(line.created) : commons_.created; }
  SamplingFields defaults() const { return sampling_defaults(service_->model().defaults()); }
  ResponseAnswers responses() const { return {service_, commons_.kept, commons_.streams}; }
  // NAME#ADAPTER means an adapter of deployment NAME; a name without '#' one of the first deployment.
  CalledDeployment adapter_place(const std::string& name) const {
    if (name.find('#') != std::string::npos) {
      CalledDeployment of = called(*commons_.deployments, name, {});
      if (!of.service) of.service = commons_.deployments->awake(of.name);
      return of;
    }
    CalledDeployment first = called(*commons_.deployments, {}, {});
    first.adapter = name;
    return first;
  }

  const OpenAiCommons& commons_;
  const std::shared_ptr<GenerationService> service_;
  const std::optional<std::string> model_;
};

class OpenAiApi {
 public:
  OpenAiApi(std::shared_ptr<const Deployments> deployments, std::shared_ptr<HeldStreams> streams, RequestLanes& lanes)
      : lanes_(lanes),
        commons_{deployments, std::make_shared<StoredResponses>(deployments->first()->options().response_bytes), unix_seconds(), {}, {}},
        streams_(streams ? std::move(streams) : std::make_shared<HeldStreams>()) {
    commons_.writer = writer_;
    commons_.streams = streams_;
  }

  using ModelWork = std::function<void(const ModelApi& api, const ApiRequest& request)>;
  // Runs `work` over the model that the body names: here, or, if the model sleeps, on a pool once it is awake. If it cannot be woken, the client
  // is told to come again.
  void with_model(const ApiRequest& request, const std::shared_ptr<Responder>& out, const ModelWork& work) {
    Meant meant = meant_by(request);
    if (meant.service) return work(ModelApi(commons_, std::move(meant.service), std::move(meant.adapter)), request);
    const auto loaded = [this, request, out, work, adapter = meant.adapter](std::shared_ptr<GenerationService> service, const std::exception_ptr& fault) {
      when_awake(lanes_.large, request, out, fault, [this, service, work, adapter](ApiRequest& r) { work(ModelApi(commons_, service, adapter), r); });
    };
    commons_.deployments->wake(meant.name, loaded);
  }

  void act_on_stream(ApiRequest& request, const std::shared_ptr<Responder>& out) {
    place(request, out, [this, out](const ApiRequest& r) { streams_->act(r, out); });
  }

  // Runs `work` for the request: here, or on a pool if it may take long.
  void place(ApiRequest& request, const std::shared_ptr<Responder>& out, const std::function<void(const ApiRequest&)>& work, bool elsewhere = false) {
    if (!elsewhere && !takes_long(request)) {
      const ClientWork scope(nullptr, request.lease);
      return work(request);
    }
    lanes_.large.post(std::move(request), out, work, [](const std::exception& e) { return error_response(e); });
  }

 private:
  struct Meant {
    std::string name;
    std::shared_ptr<GenerationService> service;  // null: it is asleep
    std::optional<std::string> adapter;          // as ModelApi has it
  };
  // The model that the body names; the first one for a body that names none or cannot be read, whose errors its decoder tells.
  Meant meant_by(const ApiRequest& request) const {
    const Deployments& all = *commons_.deployments;
    if (all.is_single() || request.method != "POST") return {{}, all.first(), std::nullopt};
    const RequestedModel asked = read_requested_model(request.body, [&](const std::string& model) {
      const std::optional<TrafficRule> rule = all.traffic().find(parse_model_name(model).deployment);
      return rule && rule->shares.size() > 1;
    });
    if (!asked.model) return {{}, all.first(), std::nullopt};
    CalledDeployment called = ModelApi::called(all, *asked.model, who_asks(request, asked));
    return {std::move(called.name), std::move(called.service), std::move(called.adapter)};
  }

  RequestLanes& lanes_;  // of the routes, which hold this
  OpenAiCommons commons_;
  const std::shared_ptr<HeldStreams> streams_;
  const std::shared_ptr<Worker> writer_ = std::make_shared<Worker>(kMostLongAnswers, 0);  // last: its thread ends before the rest goes
};
}  // namespace

void add_openai_routes(Routes& routes, std::shared_ptr<GenerationService> service) {
  add_openai_routes(routes, std::shared_ptr<const Deployments>(only_deployment(std::move(service))));
}

void add_openai_routes(Routes& routes, std::shared_ptr<const Deployments> deployments, std::shared_ptr<HeldStreams> streams) {
  const auto api = std::make_shared<OpenAiApi>(std::move(deployments), std::move(streams), routes.lanes());
  using Answer = ApiResponse (ModelApi::*)(const ApiRequest&) const;
  using Start = void (ModelApi::*)(const ApiRequest&, const std::shared_ptr<Responder>&) const;
  const auto post = [&](std::string path, auto handler) {
    routes.add({"POST", std::move(path), [handler](ApiRequest& request, const std::shared_ptr<Responder>& out) {
                  require_json(request);
                  handler(request, out);
                }});
  };
  const auto answered = [](Answer answer, const std::shared_ptr<Responder>& out) -> OpenAiApi::ModelWork {
    return [answer, out](const ModelApi& model, const ApiRequest& r) { out->send((model.*answer)(r)); };
  };
  const auto answers = [&](Answer answer) {
    return [api, answer, answered](ApiRequest& request, const std::shared_ptr<Responder>& out) {
      api->place(request, out, [a = api.get(), out, work = answered(answer, out)](const ApiRequest& r) { a->with_model(r, out, work); });
    };
  };
  // Runs an answer that reads files or long texts, or waits for the device, on a pool instead of the server's own thread.
  const auto in_turn = [&](Answer answer) {
    return [api, answer, answered](ApiRequest& request, const std::shared_ptr<Responder>& out) {
      api->place(
          request, out, [a = api.get(), out, work = answered(answer, out)](const ApiRequest& r) { a->with_model(r, out, work); }, true);
    };
  };
  const auto starts = [&](Start start) {
    return [api, start](ApiRequest& request, const std::shared_ptr<Responder>& out) {
      const OpenAiApi::ModelWork work = [start, out](const ModelApi& model, const ApiRequest& r) { (model.*start)(r, out); };
      api->place(request, out, [a = api.get(), out, work](const ApiRequest& r) { a->with_model(r, out, work); });
    };
  };
  routes.add({"GET", "/v1/models", answers(&ModelApi::models)});
  routes.add({"GET", "/v1/models/{model}", answers(&ModelApi::model)});
  post("/v1/completions", starts(&ModelApi::completions));
  post("/v1/chat/completions", starts(&ModelApi::chat));
  // It belongs to an answer that has begun: allowed while the server drains, and not counted as a request of its key.
  routes.add({.method = "POST",
              .path = "/v1/streams/{id}",
              .handler =
                  [api](ApiRequest& request, const std::shared_ptr<Responder>& out) {
                    require_json(request);
                    api->act_on_stream(request, out);
                  },
              .while_draining = true,
              .rated = false});
  post("/v1/embeddings", starts(&ModelApi::embeddings));
  post("/v1/responses", starts(&ModelApi::create_response));
  routes.add({.method = "GET",
              .path = "/v1/responses/{response_id}",
              .handler = answers(&ModelApi::response),
              .query = std::vector<std::string>{"stream", "include_obfuscation"}});
  routes.add({"DELETE", "/v1/responses/{response_id}", answers(&ModelApi::delete_response)});
  routes.add({.method = "GET",
              .path = "/v1/responses/{response_id}/input_items",
              .handler = in_turn(&ModelApi::response_items),
              .query = std::vector<std::string>{"order", "limit", "after"}});
  post("/v1/load_lora_adapter", in_turn(&ModelApi::load_adapter));
  post("/v1/unload_lora_adapter", in_turn(&ModelApi::unload_adapter));
  post("/v1/tokenize", answers(&ModelApi::tokenize));
  post("/v1/detokenize", answers(&ModelApi::detokenize));
}

}  // namespace lockstep
