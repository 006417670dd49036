#include "api/openai/embedding_answer.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "api/errors.h"
#include "api/json_text.h"
#include "api/openai/completion_answer.h"
#include "api/openai/no_op_fields.h"
#include "api/worker.h"
#include "base/base64.h"
#include "base/client_work.h"
#include "serving/on_executor.h"

namespace lockstep {
namespace {
constexpr std::size_t kMostInputs = 2048;  // OpenAI's
constexpr std::size_t kAtOnce = 64;        // inputs of one request that are open
constexpr std::size_t kFewNumbers = 4096;  // written in some tenths of a millisecond

struct EmbeddingRequest {
  std::string model, encoding = "float", pooling = "last";
  std::optional<std::int64_t> dimensions;
  bool add_special_tokens = true;
  std::vector<CompletionRequest::Prompt> inputs;
};

EmbeddingRequest decode(std::string_view body, std::int64_t hidden) {
  EmbeddingRequest r;
  JsonFields fields;
  fields.text("model", &r.model);
  fields.custom("input", [&](const Json& value, const std::string& field) { r.inputs = prompts_value(value, field, kMostInputs); });
  fields.choice("encoding_format", &r.encoding, {"float", "base64"});
  fields.choice("pooling", &r.pooling, {"last", "mean"});
  fields.integer("dimensions", &r.dimensions, 1, hidden);
  fields.not_null();
  fields.boolean("add_special_tokens", &r.add_special_tokens);
  fields.harmless("user");
  add_no_op_fields(fields);
  fields.read(parse_object(body));
  if (r.inputs.empty()) fail_field("input", "is missing");
  return r;
}

// The first `dimensions` numbers, scaled to length 1; all 0 stay 0.
std::vector<float> normalised(const std::vector<float>& pooled, std::size_t dimensions) {
  double squares = 0;
  for (std::size_t i = 0; i < dimensions; ++i) squares += static_cast<double>(pooled[i]) * pooled[i];
  const double length = std::sqrt(squares);
  std::vector<float> vector(pooled.begin(), pooled.begin() + static_cast<std::ptrdiff_t>(dimensions));
  for (float& x : vector) x = length > 0 ? static_cast<float>(x / length) : 0.0f;
  return vector;
}

void append_vector(std::string& out, const std::vector<float>& vector, bool base64) {
  static_assert(std::endian::native == std::endian::little);  // as the numbers go into base64
  if (base64) {
    append_json_string(out, to_base64({reinterpret_cast<const char*>(vector.data()), vector.size() * sizeof(float)}));
    return;
  }
  out += '[';
  for (std::size_t i = 0; i < vector.size(); ++i) {
    if (i > 0) out += ',';
    append_json_number(out, vector[i]);
  }
  out += ']';
}

// Gives the engine kAtOnce inputs at a time, so that a request of thousands leaves places to others. What it has of them belongs to steps of the executor,
// and at the end to whoever writes the answer. begin() on any thread.
class EmbeddingRun : public std::enable_shared_from_this<EmbeddingRun> {
 public:
  EmbeddingRun(std::shared_ptr<GenerationService> service, EmbeddingRequest request, std::vector<Request> prompts, std::shared_ptr<Responder> responder,
               std::weak_ptr<Worker> long_writer)
      : service_(std::move(service)),
        request_(std::move(request)),
        responder_(std::move(responder)),
        long_writer_(std::move(long_writer)),
        names_snapshot_(!prompts.empty() && !prompts.front().adapter),
        first_(std::min(kAtOnce, prompts.size())) {
    std::size_t bytes = prompts.size() * (sizeof(Request) + numbers() * sizeof(float));
    Answer answer{.vectors = std::vector<std::vector<float>>(prompts.size())};
    for (const Request& prompt : prompts) {
      bytes += prompt.prompt.size() * sizeof(std::int32_t);
      answer.tokens += static_cast<std::int64_t>(prompt.prompt.size());
    }
    ClientWork::take(bytes);
    memory_ = ClientWork::hold(bytes);
    std::move(prompts.begin(), prompts.begin() + static_cast<std::ptrdiff_t>(first_.size()), first_.begin());
    answer.next = first_.size();
    answer.prompts = std::move(prompts);
    answer_ = OfExecutor<Answer>(std::move(answer));
  }

  void begin() {
    service_->generate_all(std::move(first_), {},
                           [self = shared_from_this()](const OnExecutor& on, std::size_t i, Generation&& g) { self->done(on, i, std::move(g)); });
    responder_->on_abandoned([weak = weak_from_this()] {
      if (const auto run = weak.lock()) run->left_ = true;
    });
  }

 private:
  struct Answer {
    std::vector<std::vector<float>> vectors;
    std::vector<Request> prompts = {};  // those from `next` on have not been given to the engine
    std::size_t next = 0, done = 0;
    std::int64_t tokens = 0;
    bool ended = false;
  };
  std::size_t numbers() const { return static_cast<std::size_t>(request_.dimensions.value_or(service_->model().hidden())); }

  void done(const OnExecutor& on, std::size_t index, Generation&& generation) {
    Answer& answer = answer_.at(on);
    if (answer.ended) return;
    if (generation.finish == FinishReason::error) return end(answer, error_response(Error(ErrorCode::numeric, generation.error)));
    if (generation.finish == FinishReason::cancelled || left_)
      return end(answer, error_response(Error(ErrorCode::cancelled, "the server is stopping, or the client has gone; the request was not finished")));
    answer.vectors[index] = normalised(generation.pooled, numbers());
    if (++answer.done == answer.vectors.size()) return finish(answer);
    if (answer.next == answer.prompts.size()) return;
    const std::size_t at = answer.next++;
    std::vector<Request> one;
    one.push_back(std::move(answer.prompts[at]));
    try {
      service_->generate_all(std::move(one), {},
                             [self = shared_from_this(), at](const OnExecutor& step, std::size_t, Generation&& g) { self->done(step, at, std::move(g)); });
    } catch (const std::exception& e) {
      end(answer, error_response(e));
    }
  }

  // A long answer is written where no other request waits for it.
  void finish(Answer& answer) {
    answer.ended = true;
    const auto whole = std::make_shared<const Answer>(std::exchange(answer, {.vectors = {}, .ended = true}));
    const auto worker = whole->vectors.size() * numbers() > kFewNumbers ? long_writer_.lock() : nullptr;
    const bool taken = worker && worker->post([self = shared_from_this(), whole] { self->send(*whole); });
    if (!taken) send(*whole);
  }
  void send(const Answer& answer) const {
    try {
      responder_->send({200, "application/json", text_of(answer), {}});
    } catch (const std::exception& e) {
      responder_->send(error_response(e));
    }
  }

  std::string text_of(const Answer& answer) const {
    std::string out = "{\"object\":\"list\",\"data\":[";
    for (std::size_t i = 0; i < answer.vectors.size(); ++i) {
      out += fmt::format("{}{{\"object\":\"embedding\",\"index\":{},\"embedding\":", i > 0 ? "," : "", i);
      append_vector(out, answer.vectors[i], request_.encoding == "base64");
      out += '}';
    }
    out += "],\"model\":";
    append_json_string(out, request_.model.empty() ? service_->model().name() : request_.model);
    const std::uint64_t version = service_->weights().version();
    out += fmt::format(",\"usage\":{{\"prompt_tokens\":{0},\"total_tokens\":{0}}},\"weights_version\":{1},\"profile\":", answer.tokens, version);
    append_json_string(out, service_->model().profile_digest());
    if (const std::string snapshot = service_->weights().named(version).snapshot; names_snapshot_ && !snapshot.empty()) {
      out += ",\"snapshot\":";
      append_json_string(out, snapshot);
    }
    return out + "}";
  }

  void end(Answer& answer, ApiResponse response) const {
    answer.ended = true;
    responder_->send(std::move(response));
  }

  const std::shared_ptr<GenerationService> service_;
  const EmbeddingRequest request_;
  const std::shared_ptr<Responder> responder_;
  const std::weak_ptr<Worker> long_writer_;
  const bool names_snapshot_;     // adapters count versions of their own
  std::vector<Request> first_;    // for begin()
  std::shared_ptr<void> memory_;  // the counted memory of prompts and vectors; null: it is not counted
  OfExecutor<Answer> answer_;
  std::atomic<bool> left_ = false;
};
}  // namespace

void answer_embeddings(const std::shared_ptr<GenerationService>& service, std::string_view body, const std::string& owner,
                       const std::shared_ptr<Responder>& responder, const std::weak_ptr<Worker>& long_writer, const std::optional<std::string>& model) {
  EmbeddingRequest r = decode(body, service->model().hidden());
  if (model) r.model = *model;
  const std::shared_ptr<const AdapterWeights> adapter = require_model(*service, r.model);
  std::vector<Request> prompts;
  for (CompletionRequest::Prompt& input : r.inputs) {
    if (input.is_text) input.ids = service->model().tokenizer().encode(input.text, r.add_special_tokens);
    Request request{.prompt = std::move(input.ids)};
    request.sampling.max_tokens = 0;
    request.adapter = adapter;
    request.pooling = r.pooling == "mean" ? Pooling::mean : Pooling::last;
    request.prefix_owner = service->callers().prefix_owner(owner);
    request.account = service->callers().account(owner);
    try {
      service->check(request);
    } catch (const Error& e) {
      std::string message = e.message();
      if (message.starts_with("prompt")) message.replace(0, 6, input.field);
      throw RequestError(e.code(), input.field, std::move(message));
    }
    prompts.push_back(std::move(request));
  }
  std::make_shared<EmbeddingRun>(service, std::move(r), std::move(prompts), responder, long_writer)->begin();
}

}  // namespace lockstep
