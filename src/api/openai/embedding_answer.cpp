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

// Gives the engine kAtOnce inputs at a time, so that a request of thousands leaves places to others. begin() on any thread, the rest on the
// executor's.
class EmbeddingRun : public std::enable_shared_from_this<EmbeddingRun> {
 public:
  EmbeddingRun(std::shared_ptr<GenerationService> service, EmbeddingRequest request, std::vector<Request> prompts, std::shared_ptr<Responder> responder,
               std::weak_ptr<Worker> long_writer)
      : service_(std::move(service)),
        request_(std::move(request)),
        prompts_(std::move(prompts)),
        responder_(std::move(responder)),
        long_writer_(std::move(long_writer)),
        names_snapshot_(!prompts_.empty() && !prompts_.front().adapter),
        vectors_(prompts_.size()) {
    std::size_t bytes = prompts_.size() * (sizeof(Request) + numbers() * sizeof(float));
    for (const Request& prompt : prompts_) bytes += prompt.prompt.size() * sizeof(std::int32_t);
    ClientWork::take(bytes);
    memory_ = ClientWork::keep(bytes);
  }

  void begin() {
    std::vector<Request> first;
    while (next_ < std::min(kAtOnce, prompts_.size())) first.push_back(take());
    service_->generate_all(std::move(first), {},
                           [self = shared_from_this()](const OnExecutor&, std::size_t i, Generation&& g) { self->done(i, std::move(g)); });
    responder_->on_abandoned([weak = weak_from_this()] {
      if (const auto run = weak.lock()) run->left_ = true;
    });
  }

 private:
  std::size_t numbers() const { return static_cast<std::size_t>(request_.dimensions.value_or(service_->model().hidden())); }
  Request take() {
    tokens_ += static_cast<std::int64_t>(prompts_[next_].prompt.size());
    return std::move(prompts_[next_++]);
  }

  void done(std::size_t index, Generation&& generation) {
    if (ended_) return;
    if (generation.finish == FinishReason::error) return end(error_response(Error(ErrorCode::numeric, generation.error)));
    if (generation.finish == FinishReason::cancelled || left_)
      return end(error_response(Error(ErrorCode::cancelled, "the server is stopping, or the client has gone; the request was not finished")));
    vectors_[index] = normalised(generation.pooled, numbers());
    if (++done_ == vectors_.size()) return finish();
    if (next_ == prompts_.size()) return;
    const std::size_t at = next_;
    try {
      service_->generate(take(), {}, [self = shared_from_this(), at](Generation&& g) { self->done(at, std::move(g)); });
    } catch (const std::exception& e) {
      end(error_response(e));
    }
  }

  // A long answer is written where no other request waits for it.
  void finish() {
    ended_ = true;
    const auto worker = vectors_.size() * numbers() > kFewNumbers ? long_writer_.lock() : nullptr;
    const bool taken = worker && worker->post([self = shared_from_this()] { self->send_whole(); });
    if (!taken) send_whole();
  }
  void send_whole() {
    try {
      responder_->send({200, "application/json", whole(), {}});
    } catch (const std::exception& e) {
      responder_->send(error_response(e));
    }
  }

  std::string whole() const {
    std::string out = "{\"object\":\"list\",\"data\":[";
    for (std::size_t i = 0; i < vectors_.size(); ++i) {
      out += fmt::format("{}{{\"object\":\"embedding\",\"index\":{},\"embedding\":", i > 0 ? "," : "", i);
      append_vector(out, vectors_[i], request_.encoding == "base64");
      out += '}';
    }
    out += "],\"model\":";
    append_json_string(out, request_.model.empty() ? service_->model().name() : request_.model);
    const std::uint64_t version = service_->weights().version();
    out += fmt::format(",\"usage\":{{\"prompt_tokens\":{0},\"total_tokens\":{0}}},\"weights_version\":{1},\"profile\":", tokens_, version);
    append_json_string(out, service_->model().profile_digest());
    if (const std::string snapshot = service_->weights().named(version).snapshot; names_snapshot_ && !snapshot.empty()) {
      out += ",\"snapshot\":";
      append_json_string(out, snapshot);
    }
    return out + "}";
  }

  void end(ApiResponse response) {
    ended_ = true;
    responder_->send(std::move(response));
  }

  std::shared_ptr<GenerationService> service_;
  EmbeddingRequest request_;
  std::vector<Request> prompts_;
  std::shared_ptr<Responder> responder_;
  std::weak_ptr<Worker> long_writer_;
  std::shared_ptr<void> memory_;  // the counted memory of prompts and vectors; null: it is not counted
  const bool names_snapshot_;     // adapters count versions of their own
  std::vector<std::vector<float>> vectors_;
  std::size_t next_ = 0, done_ = 0;
  std::int64_t tokens_ = 0;
  bool ended_ = false;
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
