// One POST /v1/completions under way: its choices' tokens come in, text, log-probabilities and the answer go out, whole or as
// server-sent events. Lives as long as the service or the responder knows it.
// start() on any thread; the rest runs on the executor's.
//   std::make_shared<CompletionRun>(service, request, responder)->start();
#pragma once
#include <memory>
#include <mutex>

#include "api/exchange.h"
#include "api/json_fields.h"
#include "api/openai/completion_request.h"
#include "service/serving.h"
#include "service/text_stream.h"

namespace lockstep {

class CompletionRun : public std::enable_shared_from_this<CompletionRun> {
 public:
  CompletionRun(std::shared_ptr<GenerationService> service, CompletionRequest request, std::shared_ptr<Responder> responder);
  // Errors as GenerationService::generate, with RequestError's param where a field is at fault; then nothing is under way.
  void start();

 private:
  // What a choice has gathered since it was last shown.
  struct Shown {
    std::string text;
    std::vector<GeneratedToken> tokens;
    std::vector<std::int64_t> offsets;  // of each token's text, in characters
  };
  struct Choice {
    TextStream text;
    Detokenizer characters;  // for offsets: of all tokens, stop strings too
    std::int64_t offset = 0;
    Shown shown;
    std::string finish;
    std::size_t completion_tokens = 0;
  };
  std::vector<Request> requests();
  bool on_token(std::size_t index, const GeneratedToken& token);
  void on_done(std::size_t index, Generation&& generation);
  void abandon();
  void fail_with(const Error& error);
  Json choice_json(std::size_t index, const Shown& shown, const std::string& finish) const;
  Json logprobs_json(const Shown& shown) const;
  Json answer_json(Json choices) const;
  Json usage_json() const;
  void send_event(const Json& json);

  std::shared_ptr<GenerationService> service_;
  CompletionRequest request_;
  std::shared_ptr<Responder> responder_;
  std::string id_;
  std::int64_t created_ = 0;
  std::uint64_t seed_ = 0;
  std::int64_t prompt_tokens_ = 0;
  // Of the executor's thread once started.
  std::vector<Choice> choices_;
  std::size_t open_ = 0;
  std::uint64_t weights_version_ = 0;
  bool mixed_versions_ = false, any_token_ = false, streaming_ = false, failed_ = false;
  std::mutex mutex_;  // of ids_
  std::vector<std::uint64_t> ids_;
};

}  // namespace lockstep
