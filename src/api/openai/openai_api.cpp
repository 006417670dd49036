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
}  // namespace

const OpenAiApi::Route OpenAiApi::kRoutes[] = {
    {"GET", "/healthz", &OpenAiApi::health},
    {"GET", "/v1/models", &OpenAiApi::models},
    {"POST", "/v1/completions", &OpenAiApi::completions},
};

OpenAiApi::OpenAiApi(std::shared_ptr<GenerationService> service) : service_(std::move(service)), created_(unix_seconds()) {}

const OpenAiApi::Route& OpenAiApi::route(const ApiRequest& request) const {
  std::string allowed;
  std::vector<std::string> paths;
  for (const Route& r : kRoutes) {
    if (r.path == request.path && r.method == request.method) return r;
    if (r.path == request.path) allowed += (allowed.empty() ? "" : ", ") + std::string(r.method);
    paths.emplace_back(r.path);
  }
  if (allowed.empty())
    throw RequestError(ErrorCode::not_found, {}, fmt::format("there is no {}{}; known are {}", shown(request.path), did_you_mean(request.path, paths), fmt::join(paths, ", ")));
  throw RequestError(ErrorCode::invalid_argument, {}, fmt::format("{} is not offered on {}, allowed is {}", shown(request.method), request.path, allowed), 405,
                     "method_not_allowed");
}

void OpenAiApi::handle(const ApiRequest& request, std::shared_ptr<Responder> responder) {
  try {
    (this->*route(request).handler)(request, responder);
  } catch (const std::exception& e) {
    ApiResponse response = lockstep::error_response(e);
    if (response.status == 405)
      for (const Route& r : kRoutes)
        if (r.path == request.path) response.headers.emplace_back("Allow", r.method);
    responder->send(std::move(response));
  }
}

ApiResponse OpenAiApi::error_response(int status, std::string_view message) const { return error_response_of(status, message); }

void OpenAiApi::health(const ApiRequest&, const std::shared_ptr<Responder>& responder) const {
  responder->send(json_response({{"status", "ok"},
                                 {"model", service_->name()},
                                 {"weights_version", service_->weights_version()},
                                 {"profile", service_->profile_digest()},
                                 {"open_requests", service_->open()}}));
}

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

}  // namespace lockstep
