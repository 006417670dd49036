// TrainingRoutes: rows under every prefix of the protocols, bodies on threads that decode, errors as the clients show them.
#include "api/errors.h"
#include "api/tinker/wire.h"
#include "base/bounded_json.h"
#include "base/hash.h"

namespace lockstep {
namespace {
constexpr std::size_t kDecoders = 2, kMostWaitingBodies = 4096;

// The clients of both protocols show "detail".
ApiResponse detail_response(const std::exception& error) {
  ApiResponse response = lockstep::error_response(error);
  if (response.status == 409) response.status = 422;  // they repeat a 409 for minutes
  TrainingJson body = read_json(response.body);
  const TrainingJson inner = body.contains("error") ? body["error"] : TrainingJson::object();
  body["detail"] = inner.contains("message") ? inner["message"] : TrainingJson("the request failed");
  body["code"] = response.status;
  body["message"] = body["detail"];
  response.body = body.dump(-1, ' ', false, TrainingJson::error_handler_t::replace);
  return response;
}

// Whoever has a key is told apart by it, also where the server does not ask for one.
std::string owner_of(const ApiRequest& request) {
  if (!request.key_name.empty()) return request.key_name;
  std::string_view key = request.header("x-api-key");
  if (key.empty()) {
    key = request.header("authorization");
    if (key.starts_with("Bearer ")) key.remove_prefix(7);
  }
  return key.empty() ? std::string("anyone") : "key-" + sha256_hex(key).substr(0, 24);
}

const char* const kPrefixes[] = {"", "/training/v1/rlorTrainerJobs/{account}/{job}", "/training/v1/serverless"};
}  // namespace

TrainingRoutes::TrainingRoutes(Routes& routes, std::shared_ptr<TrainingService> service)
    : routes_(routes), service_(std::move(service)), workers_(std::make_shared<std::vector<std::unique_ptr<Worker>>>()) {
  for (std::size_t i = 0; i < kDecoders; ++i) workers_->push_back(std::make_unique<Worker>(kMostWaitingBodies, 0));
}

void TrainingRoutes::add(const std::string& method, const std::string& path, JsonFields fields, Handler handler) {
  const auto shared = std::make_shared<const JsonFields>(std::move(fields));
  for (const char* prefix : kPrefixes) add_row(method, fmt::format("{}/api/v1/{}", prefix, path), shared, handler, true);
}

void TrainingRoutes::add_row(const std::string& method, const std::string& path, std::shared_ptr<const JsonFields> fields, Handler handler, bool needs_key) {
  routes_.add({method, path, [service = service_, workers = workers_, next = next_, fields = std::move(fields), handler = std::move(handler)](const ApiRequest& request, const std::shared_ptr<Responder>& out) {
                 const auto shared = std::make_shared<ApiRequest>(request);
                 // Bodies are long, and the store writes to disk: neither on the server's own thread.
                 const auto came = std::chrono::steady_clock::now();
                 const bool taken = (*workers)[(*next)++ % workers->size()]->post([service, shared, out, fields, handler, came] {
                   const TrainingCall call{*shared, out, *service, owner_of(*shared), came, fields.get()};
                   try {
                     try {
                       handler(call);
                     } catch (const UnknownFieldOfOperation& e) {
                       call.answer_future(service->refuse(call.owner, e.model, e.sequence, e), e.model);
                     }
                   } catch (const std::exception& e) {
                     out->send(detail_response(e));
                   }
                 });
                 if (!taken) throw Error(ErrorCode::resource_exhausted, "too many requests are waiting to be read; try again later");
               }, needs_key});
}

}  // namespace lockstep
