// POST /v1/embeddings: for each input a vector of length 1, the hidden state after the final norm, of the last token or the mean over all
// (`pooling`). Its bits depend on the input's tokens and the weights alone. Any thread.
//   answer_embeddings(service, R"({"input": ["a text", "another"], "dimensions": 32})", owner, responder);
#pragma once
#include "api/exchange.h"
#include "serving/serving.h"

namespace lockstep {

class Worker;

// `owner` as answer_completion's. Throws RequestError with the field at fault; then the responder has not been used.
// `long_writer`: as AnswerOrder's. `model`: instead of the body's own (api/openai/requested_model.h).
void answer_embeddings(const std::shared_ptr<GenerationService>& service, std::string_view body, const std::string& owner,
                       const std::shared_ptr<Responder>& responder, const std::weak_ptr<Worker>& long_writer = {},
                       const std::optional<std::string>& model = {});

}  // namespace lockstep
