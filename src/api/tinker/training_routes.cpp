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

const char* const kJobPrefix = "/training/v1/rlorTrainerJobs/{account}/{job}";
const char* const kPrefixes[] = {"", kJobPrefix, "/training/v1/serverless"};

// The job in a path is the key's own and there, or "local". Errors not_found: it is another's, nobody's, or was deleted.
void check_job_of_path(const TrainingCall& call) {
  const std::string name = fmt::format("accounts/{}/rlorTrainerJobs/{}", call.request.parameter("account"), call.request.parameter("job"));
  if (call.service.control().job(call.owner, name).state == "JOB_STATE_DELETED")
    throw RequestError(ErrorCode::not_found, "job", fmt::format("the trainer job '{}' was deleted", shown(name)), 404);
}
}  // namespace

TrainingRoutes::TrainingRoutes(Routes& routes, std::shared_ptr<TrainingService> service) : routes_(routes), service_(std::move(service)) {}

void TrainingRoutes::add_under_prefixes(const Row& row, const Handler& handler) {
  for (const char* prefix : kPrefixes) {
    Row one = row;
    one.path = fmt::format("{}/api/v1/{}", prefix, row.path);
    one.of_job = prefix == kJobPrefix;
    add_row(std::move(one), handler);
  }
}

void TrainingRoutes::add_row(Row row, Handler handler) {
  const auto shared = std::make_shared<const Row>(std::move(row));
  routes_.add({.method = shared->method,
               .path = shared->path,
               .handler =
                   [service = service_, lanes = &routes_.lanes(), row = shared, handler = std::move(handler)](ApiRequest& request,
                                                                                                              const std::shared_ptr<Responder>& out) {
                     // Bodies are long, and the store writes to disk: neither on the server's own thread.
                     RequestPool& lane = !TrainingCall::is_short(request) ? lanes->large : row->quick ? lanes->quick : lanes->small;
                     const auto came = std::chrono::steady_clock::now();
                     const auto work = [service, out, row, handler, came](ApiRequest& its) {
                       const TrainingCall call{its, out, *service, its.owner, came, row->fields.get()};
                       try {
                         if (row->of_job) check_job_of_path(call);
                         its.check_query(row->query);
                         handler(call);
                       } catch (const UnknownFieldOfOperation& e) {
                         call.answer_future(service->lanes().refuse(call.owner, e.model, e.sequence, e), e.model);
                       }
                     };
                     lane.post(std::move(request), out, work, detail_response);
                   },
               .needs_key = shared->needs_key,
               .query = std::nullopt,  // checked where its error is told as these clients show it
               .draining_status = shared->draining_status,
               .rated = !shared->quick});
}

}  // namespace lockstep
