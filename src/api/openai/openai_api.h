// The HTTP API that OpenAI's clients speak, over a generation service: rows of {method, path, handler}.
//   GET /v1/models   GET /healthz   POST /v1/completions
// Beyond OpenAI's answer: token_ids and sampling_logprobs a choice; seed, weights_version and profile (its digest).
// Knows no socket. Any thread.
//   OpenAiApi api(service); api.handle(request, responder);
#pragma once
#include "api/exchange.h"
#include "service/serving.h"

namespace lockstep {

class OpenAiApi : public Api {
 public:
  explicit OpenAiApi(std::shared_ptr<GenerationService> service);
  void handle(const ApiRequest& request, std::shared_ptr<Responder> responder) override;
  ApiResponse error_response(int status, std::string_view message) const override;

 private:
  struct Route {
    std::string_view method, path;
    void (OpenAiApi::*handler)(const ApiRequest&, const std::shared_ptr<Responder>&) const;
  };
  static const Route kRoutes[];
  const Route& route(const ApiRequest& request) const;
  void health(const ApiRequest& request, const std::shared_ptr<Responder>& responder) const;
  void models(const ApiRequest& request, const std::shared_ptr<Responder>& responder) const;
  void completions(const ApiRequest& request, const std::shared_ptr<Responder>& responder) const;

  std::shared_ptr<GenerationService> service_;
  std::int64_t created_;
};

}  // namespace lockstep
