// Continues a request whose model was asleep (serving/deployments.h): when the model is loaded, or with an error why it is not.
//   deployments->wake(name, [=](auto service, const auto& fault) {
//     when_awake(pool, request, out, fault, [=](ApiRequest& r) { answer(service, r); }); });
#pragma once
#include <exception>
#include <memory>

#include "api/exchange.h"
#include "api/request_pool.h"

namespace lockstep {

// Runs `work` on the pool. With a `fault` the client gets it as an error; an AsleepError as 503 with Retry-After.
void when_awake(RequestPool& pool, ApiRequest request, const std::shared_ptr<Responder>& out, const std::exception_ptr& fault, RequestPool::Work work);

}  // namespace lockstep
