// The Responses API over chat completions: POST /v1/responses converts the body to a chat request and answers with typed events; GET and DELETE
// /v1/responses/{id} and GET /v1/responses/{id}/input_items read stored responses. Several models may share one store, so that a conversation can go
// on with another model. Any thread.
//   ResponseAnswers answers(service); answers.create(request, responder); responder->send(answers.retrieve(request));
#pragma once
#include "api/exchange.h"
#include "api/openai/held_streams.h"
#include "api/openai/stored_responses.h"
#include "serving/serving.h"

namespace lockstep {

class ResponseAnswers {
 public:
  explicit ResponseAnswers(std::shared_ptr<GenerationService> service)
      : service_(std::move(service)), kept_(std::make_shared<StoredResponses>(service_->options().response_bytes)) {}
  // `streams`: where clients find those that are held.
  ResponseAnswers(std::shared_ptr<GenerationService> service, std::shared_ptr<StoredResponses> kept, std::weak_ptr<HeldStreams> streams)
      : service_(std::move(service)), kept_(std::move(kept)), streams_(std::move(streams)) {}
  // `model`: instead of the body's own (api/openai/requested_model.h).
  void create(const ApiRequest& request, const std::shared_ptr<Responder>& out, const std::optional<std::string>& model = {}) const;
  ApiResponse retrieve(const ApiRequest& request) const;
  ApiResponse erase(const ApiRequest& request) const;
  ApiResponse input_items(const ApiRequest& request) const;

 private:
  std::shared_ptr<const StoredResponse> kept(const ApiRequest& request) const;
  [[noreturn]] void fail_unknown(const std::string& field, const std::string& id, int status) const;
  std::shared_ptr<GenerationService> service_;
  std::shared_ptr<StoredResponses> kept_;
  std::weak_ptr<HeldStreams> streams_;
};

}  // namespace lockstep
