// Adds routes under every prefix of the protocols, chooses the pool of each request, and writes errors in the form that the clients show.
#include "api/tinker/training_routes.h"

#include "api/body_budget.h"
#include "api/percent.h"
#include "api/tinker/zstd_body.h"
#include "base/ascii.h"

namespace lockstep {
namespace {
constexpr std::size_t kMostBody = std::size_t{512} << 20;  // decompressed
constexpr std::size_t kShortBody = 32 << 10;

bool is_plain(const ApiRequest& request) {
  const std::string encoding = ascii_lower(request.header("content-encoding"));
  return encoding.empty() || encoding == "identity";
}

// Roughly the memory of a batch, bytes, with the overhead of its containers.
std::size_t memory_of(const TrainingBatch& batch) {
  std::size_t bytes = 0;
  for (const TrainingDatum& datum : batch.data) {
    bytes += sizeof datum + datum.tokens.capacity() * sizeof(std::int32_t);
    for (const auto& [name, tensor] : datum.inputs)
      bytes += sizeof tensor + 96 + name.size() + tensor.floats.capacity() * sizeof(float) +
               (tensor.integers.capacity() + tensor.shape.capacity()) * sizeof(std::int64_t);
    for (const std::string& matrix : datum.routing_matrices) bytes += sizeof matrix + matrix.capacity();
  }
  return bytes;
}

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

// Checks that the job in a path is the key's own, or "local". Error not_found: it is another key's, does not exist, or was deleted.
void check_job_of_path(const TrainingCall& call) {
  const std::string name = fmt::format("accounts/{}/rlorTrainerJobs/{}", call.request.parameter("account"), call.request.parameter("job"));
  if (call.service.control().job(call.owner, name).state == "JOB_STATE_DELETED")
    throw RequestError(ErrorCode::not_found, "job", fmt::format("the trainer job '{}' was deleted", shown(name)), 404);
}
}  // namespace

bool TrainingCall::is_protobuf() const { return ascii_lower(request.content_type).find("protobuf") != std::string::npos; }

bool TrainingCall::is_short(const ApiRequest& request) { return request.body.size() <= kShortBody && is_plain(request); }

bool TrainingCall::speaks_fireworks() const {
  const std::string_view version = request.header("x-stainless-package-version");
  return !request.path.starts_with("/api/") || (!version.empty() && !version.starts_with("0."));
}

std::unique_ptr<ByteSource> TrainingCall::body() const {
  if (is_plain(request)) return std::make_unique<TextSource>(request.body);
  const std::string encoding = ascii_lower(request.header("content-encoding"));
  if (encoding != "zstd")
    throw RequestError(ErrorCode::invalid_argument, {}, fmt::format("content-encoding is '{}', allowed are identity and zstd", shown(encoding)), 415);
  return std::make_unique<ZstdSource>(request.body, kMostBody);
}

TrainingJson TrainingCall::json(const JsonLimits& limits) const {
  if (request.body.empty()) return TrainingJson::object();
  TrainingJson json;
  try {
    json = is_plain(request) ? read_json(request.body, limits) : read_json(*body(), limits);
  } catch (const RequestError&) {
    throw;  // of what the body is packed in
  } catch (const Error& e) {
    if (e.code() != ErrorCode::invalid_argument) throw;
    throw RequestError(e.code(), {}, "the body " + e.message());
  }
  if (!json.is_object()) throw RequestError(ErrorCode::invalid_argument, {}, "the body is no JSON object", 400);
  if (!fields) return json;
  try {
    fields->read(json);
  } catch (const RequestError& e) {
    const TrainingJson model = json.value("model_id", TrainingJson()), sequence = json.value("seq_id", TrainingJson());
    if (model.is_string() && sequence.is_number_integer()) throw UnknownFieldOfOperation(e, model.get<std::string>(), required_integer(json, "seq_id"));
    throw;
  }
  return json;
}

void TrainingCall::keep(TrainingBatch& batch) const {
  std::string().swap(request.body);
  if (!request.lease) return;
  request.lease->settle(memory_of(batch));
  batch.held = request.lease;
}

void TrainingCall::answer(const TrainingJson& json, int status) const {
  out->send({status, "application/json", json.dump(-1, ' ', false, TrainingJson::error_handler_t::replace), {}});
}

bool TrainingCall::from_this_machine() const {
  for (const char* proxy : {"forwarded", "x-forwarded-for", "x-real-ip", "via"})
    if (!request.header(proxy).empty()) return false;
  return request.from_this_machine;
}

std::string TrainingCall::text_header(std::string_view name) const {
  constexpr std::size_t kLongest = 256;
  std::string value(request.header(name));
  if (value.size() > kLongest || !is_utf8(value)) fail_value(fmt::format("the header {}", name), fmt::format("is no UTF-8 text of at most {} bytes", kLongest));
  return value;
}

void TrainingCall::answer_future(const std::string& request_id, const std::string& model) const {
  TrainingJson json{{"request_id", request_id}};
  if (!model.empty()) json["model_id"] = model;
  answer(json);
}

TrainingJson TrainingCall::metadata_field(const TrainingJson& json, const std::string& name) const {
  TrainingJson value = object_field(json, name);
  try {
    service.metadata().check(name, ClientJson(value));
  } catch (const Error& e) {
    throw RequestError(e.code(), name, e.message(), 422);
  }
  return value;
}

Outcome json_outcome(const TrainingJson& json) { return {"application/json", json.dump(-1, ' ', false, TrainingJson::error_handler_t::replace), {}, {}}; }

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
                     // Never on the server's own thread: bodies may be long, and the store writes to disk.
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
               .query = std::nullopt,  // checked above, where the error gets these clients' form
               .draining_status = shared->draining_status,
               .rated = !shared->quick});
}

}  // namespace lockstep
