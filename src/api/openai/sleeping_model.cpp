#include "api/openai/sleeping_model.h"

#include <cmath>

#include "api/errors.h"
#include "base/server_paths.h"
#include "serving/deployments.h"

namespace lockstep {
namespace {
ApiResponse asleep_response(const AsleepError& asleep) {
  ApiResponse response = error_response(RequestError(ErrorCode::resource_exhausted, "model", without_server_paths(asleep.message()), 503, "model_asleep"));
  for (auto& [name, value] : response.headers)
    if (name == "Retry-After") value = fmt::format("{:.0f}", std::ceil(asleep.seconds()));
  return response;
}
}  // namespace

void when_awake(RequestPool& pool, ApiRequest request, const std::shared_ptr<Responder>& out, const std::exception_ptr& fault, RequestPool::Work work) {
  try {
    if (fault) std::rethrow_exception(fault);
    pool.post(std::move(request), out, std::move(work), [](const std::exception& e) { return error_response(e); });
  } catch (const AsleepError& e) {
    out->send(asleep_response(e));
  } catch (const std::exception& e) {
    out->send(error_response(e));
  }
}

}  // namespace lockstep
