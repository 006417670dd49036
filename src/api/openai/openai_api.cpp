#include "api/openai/openai_api.h"

#include <algorithm>
#include <chrono>

#include "api/errors.h"
#include "api/openai/completion_run.h"

namespace lockstep {
namespace {
std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

ApiResponse json_response(const Json& json) {
  return {200, "application/json", json.dump(-1, ' ', false, Json::error_handler_t::replace), {}};
}

std::string shown(std::string_view text) { return std::string(text.substr(0, 80)) + (text.size() > 80 ? "..." : ""); }

// A page in a browser can make one send any body to a server on its own machine, but not as JSON, unless we allow it.
void require_json(const ApiRequest& request) {
  std::string type = request.content_type.substr(0, request.content_type.find(';'));
  while (!type.empty() && type.back() == ' ') type.pop_back();
  std::transform(type.begin(), type.end(), type.begin(), [](unsigned char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
  if (type != "application/json")
    throw RequestError(ErrorCode::invalid_argument, {}, fmt::format("content-type is '{}', allowed is application/json", shown(type)), 415,
                       "unsupported_media_type");
}

class OpenAiApi {
 public:
  explicit OpenAiApi(std::shared_ptr<GenerationService> service) : service_(std::move(service)), created_(unix_seconds()) {}
  void models(const ApiRequest& request, const std::shared_ptr<Responder>& responder) const;
  void completions(const ApiRequest& request, const std::shared_ptr<Responder>& responder) const;

 private:
  std::shared_ptr<GenerationService> service_;
  std::int64_t created_;
};

void OpenAiApi::models(const ApiRequest&, const std::shared_ptr<Responder>& responder) const {
  const Json model{{"id", service_->name()},
                   {"object", "model"},
                   {"created", created_},
                   {"owned_by", "lockstep"},
                   {"weights_version", service_->weights_version()},
                   {"profile", service_->profile_digest()},
                   {"profile_name", service_->profile_name()},
                   {"max_model_len", service_->limits().max_positions}};
  responder->send(json_response({{"object", "list"}, {"data", Json::array({model})}}));
}

void OpenAiApi::completions(const ApiRequest& request, const std::shared_ptr<Responder>& responder) const {
  require_json(request);
  CompletionRequest completion = decode_completion(request.body);
  if (completion.model != service_->name())
    throw RequestError(ErrorCode::not_found, "model",
                       fmt::format("model '{}' is not served here; known is '{}'{}", shown(completion.model), service_->name(),
                                   did_you_mean(completion.model, {service_->name()})),
                       0, "model_not_found");
  std::make_shared<CompletionRun>(service_, std::move(completion), responder)->start();
}
}  // namespace

void add_openai_routes(Routes& routes, std::shared_ptr<GenerationService> service) {
  const auto api = std::make_shared<OpenAiApi>(std::move(service));
  const auto row = [&](std::string method, std::string path, void (OpenAiApi::*handler)(const ApiRequest&, const std::shared_ptr<Responder>&) const) {
    routes.add({std::move(method), std::move(path), [api, handler](const auto& request, const auto& out) { ((*api).*handler)(request, out); }});
  };
  row("GET", "/v1/models", &OpenAiApi::models);
  row("POST", "/v1/completions", &OpenAiApi::completions);
}

}  // namespace lockstep
