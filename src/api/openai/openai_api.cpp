#include "api/openai/openai_api.h"

#include <algorithm>
#include <chrono>

#include "api/body_budget.h"
#include "api/errors.h"
#include "api/json_fields.h"
#include "api/openai/chat_answer.h"
#include "api/openai/completion_answer.h"
#include "api/openai/embedding_answer.h"
#include "api/openai/response_answer.h"
#include "api/openai/token_routes.h"
#include "api/worker.h"
#include "base/ascii.h"
#include "base/client_work.h"
#include "serving/context_limit.h"

namespace lockstep {
namespace {
std::int64_t unix_seconds() { return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count(); }

ApiResponse json_response(const Json& json) { return {200, "application/json", json.dump(-1, ' ', false, Json::error_handler_t::replace), {}}; }

// A page in a browser can make one send any body to a server on its own machine, but not as JSON, unless we allow it.
void require_json(const ApiRequest& request) {
  const std::string_view type = trimmed(std::string_view(request.content_type).substr(0, request.content_type.find(';')));
  if (ascii_lower(type) != "application/json")
    throw RequestError(ErrorCode::invalid_argument, {}, fmt::format("content-type is '{}', allowed is application/json", type.substr(0, 80)), 415,
                       "unsupported_media_type");
}

// What may take longer to decode than a server's thread should be away: long texts, schemas, and talks that were kept, of whatever
// spelling. (The backslash: a key may be written with escapes.)
bool takes_long(const ApiRequest& request) {
  constexpr std::size_t kLongBody = 32 << 10;
  if (request.body.size() > kLongBody) return true;
  for (const char* word : {"response_format", "json_schema", "tool_choice", "strict", "previous_response_id", "\\u"})
    if (request.body.find(word) != std::string::npos) return true;
  return false;
}

constexpr std::size_t kMostLongAnswers = 1024;

class OpenAiApi {
 public:
  OpenAiApi(std::shared_ptr<GenerationService> service, RequestLanes& lanes)
      : service_(std::move(service)), lanes_(lanes), responses_(service_), created_(unix_seconds()) {}

  ApiResponse models(const ApiRequest&) const {
    Json all = Json::array({model_json()});
    for (const NamedAdapter& adapter : service_->adapters().list()) all.push_back(adapter_json(adapter));
    return json_response({{"object", "list"}, {"data", std::move(all)}});
  }
  ApiResponse model(const ApiRequest& request) const {
    const std::string name(request.parameter("model"));
    if (const std::optional<NamedAdapter> adapter = service_->adapters().find(name)) return json_response(adapter_json(*adapter));
    require_model(*service_, name);
    return json_response(model_json());
  }
  // As vLLM has them; a folder is named relative to the server's folder of adapters.
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
    return json_response(adapter_json(service_->adapters().load_below_root(name, path, in_place)));
  }
  ApiResponse unload_adapter(const ApiRequest& request) const {
    std::string name;
    JsonFields fields;
    fields.text("lora_name", &name);
    fields.harmless("lora_int_id");
    fields.read(parse_object(request.body));
    if (name.empty()) fail_field("lora_name", "is missing");
    service_->adapters().unload(name);
    return json_response({{"id", name}, {"object", "model"}, {"deleted", true}});
  }
  ApiResponse tokenize(const ApiRequest& request) const { return {200, "application/json", tokenize_answer(*service_, request.body), {}}; }
  ApiResponse detokenize(const ApiRequest& request) const { return json_response(detokenize_json(*service_, request.body)); }
  void completions(const ApiRequest& request, const std::shared_ptr<Responder>& out) const {
    answer_completion(service_, decode_completion(request.body, defaults_), request.key_name, out, writer_);
  }
  void chat(const ApiRequest& request, const std::shared_ptr<Responder>& out) const {
    answer_chat(service_, decode_chat(request.body, defaults_), request.key_name, out, writer_);
  }
  void embeddings(const ApiRequest& request, const std::shared_ptr<Responder>& out) const {
    answer_embeddings(service_, request.body, request.key_name, out, writer_);
  }
  void create_response(const ApiRequest& request, const std::shared_ptr<Responder>& out) const { responses_.create(request, out); }
  ApiResponse response(const ApiRequest& request) const { return responses_.retrieve(request); }
  ApiResponse delete_response(const ApiRequest& request) const { return responses_.erase(request); }
  ApiResponse response_items(const ApiRequest& request) const { return responses_.input_items(request); }

  // Runs `work` for the request: here, or where its time is nobody else's.
  void place(ApiRequest& request, const std::shared_ptr<Responder>& out, const std::function<void(const ApiRequest&)>& work, bool elsewhere = false) {
    if (!elsewhere && !takes_long(request)) {
      const ClientWork scope(nullptr, request.lease);
      return work(request);
    }
    lanes_.large.post(std::move(request), out, work, [](const std::exception& e) { return error_response(e); });
  }

 private:
  Json adapter_json(const NamedAdapter& adapter) const {
    Json json = model_json();
    json["id"] = adapter.name;
    json["created"] = static_cast<std::int64_t>(adapter.loaded);
    json["weights_version"] = adapter.weights->version;
    json["parent"] = service_->model().name();
    json["rank"] = adapter.weights->layout->settings().rank;
    return json;
  }
  Json model_json() const {
    return {{"id", service_->model().name()},
            {"object", "model"},
            {"created", created_},
            {"owned_by", "lockstep"},
            {"chat", service_->model().has_chat()},
            {"generation_config", to_json(service_->model().defaults())},
            {"max_model_len", longest_request(service_->limits())},
            {"weights_version", service_->weights_version()},
            {"profile", service_->model().profile_digest()},
            {"profile_name", service_->model().profile_name()}};
  }
  std::shared_ptr<GenerationService> service_;
  const SamplingFields defaults_ = sampling_defaults(service_->model().defaults());
  RequestLanes& lanes_;  // of the routes, which hold this
  ResponseAnswers responses_;
  std::int64_t created_;
  std::shared_ptr<Worker> writer_ = std::make_shared<Worker>(kMostLongAnswers, 0);  // last: its thread ends before the rest goes
};
}  // namespace

void add_openai_routes(Routes& routes, std::shared_ptr<GenerationService> service) {
  const auto api = std::make_shared<OpenAiApi>(std::move(service), routes.lanes());
  using Answer = ApiResponse (OpenAiApi::*)(const ApiRequest&) const;
  using Start = void (OpenAiApi::*)(const ApiRequest&, const std::shared_ptr<Responder>&) const;
  const auto post = [&](std::string path, auto handler) {
    routes.add({"POST", std::move(path), [handler](ApiRequest& request, const std::shared_ptr<Responder>& out) {
                  require_json(request);
                  handler(request, out);
                }});
  };
  const auto answers = [&](Answer answer) {
    return [api, answer](ApiRequest& request, const std::shared_ptr<Responder>& out) {
      api->place(request, out, [a = api.get(), answer, out](const ApiRequest& r) { out->send((a->*answer)(r)); });
    };
  };
  // What reads files or long texts, or waits for the device, never on the server's own thread.
  const auto in_turn = [&](Answer answer) {
    return [api, answer](ApiRequest& request, const std::shared_ptr<Responder>& out) {
      api->place(
          request, out, [a = api.get(), answer, out](const ApiRequest& r) { out->send((a->*answer)(r)); }, true);
    };
  };
  const auto starts = [&](Start start) {
    return [api, start](ApiRequest& request, const std::shared_ptr<Responder>& out) {
      api->place(request, out, [a = api.get(), start, out](const ApiRequest& r) { (a->*start)(r, out); });
    };
  };
  routes.add({"GET", "/v1/models", answers(&OpenAiApi::models)});
  routes.add({"GET", "/v1/models/{model}", answers(&OpenAiApi::model)});
  post("/v1/completions", starts(&OpenAiApi::completions));
  post("/v1/chat/completions", starts(&OpenAiApi::chat));
  post("/v1/embeddings", starts(&OpenAiApi::embeddings));
  post("/v1/responses", starts(&OpenAiApi::create_response));
  routes.add({.method = "GET",
              .path = "/v1/responses/{response_id}",
              .handler = answers(&OpenAiApi::response),
              .query = std::vector<std::string>{"stream", "include_obfuscation"}});
  routes.add({"DELETE", "/v1/responses/{response_id}", answers(&OpenAiApi::delete_response)});
  routes.add({.method = "GET",
              .path = "/v1/responses/{response_id}/input_items",
              .handler = in_turn(&OpenAiApi::response_items),
              .query = std::vector<std::string>{"order", "limit", "after"}});
  post("/v1/load_lora_adapter", in_turn(&OpenAiApi::load_adapter));
  post("/v1/unload_lora_adapter", in_turn(&OpenAiApi::unload_adapter));
  post("/v1/tokenize", answers(&OpenAiApi::tokenize));
  post("/v1/detokenize", answers(&OpenAiApi::detokenize));
}

}  // namespace lockstep
