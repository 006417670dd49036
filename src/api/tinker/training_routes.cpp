// TrainingRoutes: rows under every prefix of the protocols, each body in its lane, errors as the clients show them.
#include "api/errors.h"
#include "api/tinker/wire.h"
#include "base/bounded_json.h"

namespace lockstep {
namespace {
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

const char* const kPrefixes[] = {"", "/training/v1/rlorTrainerJobs/{account}/{job}", "/training/v1/serverless"};
}  // namespace

TrainingRoutes::TrainingRoutes(Routes& routes, std::shared_ptr<TrainingService> service) : routes_(routes), service_(std::move(service)) {}

void TrainingRoutes::add(const std::string& method, const std::string& path, JsonFields fields, Handler handler, bool quick) {
  const auto shared = std::make_shared<const JsonFields>(std::move(fields));
  for (const char* prefix : kPrefixes) add_row(method, fmt::format("{}/api/v1/{}", prefix, path), shared, handler, true, quick);
}

void TrainingRoutes::add_row(const std::string& method, const std::string& path, std::shared_ptr<const JsonFields> fields, Handler handler, bool needs_key, bool quick) {
  routes_.add({method, path, [service = service_, lanes = &routes_.lanes(), quick, fields = std::move(fields), handler = std::move(handler)](ApiRequest& request, const std::shared_ptr<Responder>& out) {
                 // Bodies are long, and the store writes to disk: neither on the server's own thread.
                 RequestPool& lane = !TrainingCall::is_short(request) ? lanes->large : quick ? lanes->quick : lanes->small;
                 const auto came = std::chrono::steady_clock::now();
                 const auto work = [service, out, fields, handler, came](ApiRequest& its) {
                   const TrainingCall call{its, out, *service, its.owner, came, fields.get()};
                   try {
                     handler(call);
                   } catch (const UnknownFieldOfOperation& e) {
                     call.answer_future(service->refuse(call.owner, e.model, e.sequence, e), e.model);
                   }
                 };
                 lane.post(std::move(request), out, work, detail_response);
               }, needs_key});
}

}  // namespace lockstep
