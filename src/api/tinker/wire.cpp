#include "api/tinker/wire.h"

#include <cmath>

#include "api/errors.h"
#include "api/json_fields.h"
#include "api/percent.h"
#include "api/tinker/zstd_body.h"
#include "base/ascii.h"
#include "base/bounded_json.h"
#include "base/hash.h"

namespace lockstep {
namespace {
constexpr std::size_t kMostBody = std::size_t{512} << 20;  // decompressed
constexpr std::size_t kDecoders = 2, kMostWaitingBodies = 4096;

const TrainingJson* field(const TrainingJson& json, const std::string& name) {
  const auto found = json.find(name);
  return found == json.end() || found->is_null() ? nullptr : &*found;
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

// Whoever has a key is told apart by it, also where the server does not ask for one.
std::string owner_of(const ApiRequest& request) {
  if (!request.key_name.empty()) return request.key_name;
  std::string_view key = request.header("x-api-key");
  if (key.empty()) {
    key = request.header("authorization");
    if (key.starts_with("Bearer ")) key.remove_prefix(7);
  }
  return key.empty() ? std::string("anyone") : "key-" + sha256_hex(key).substr(0, 24);
}

const char* const kPrefixes[] = {"", "/training/v1/rlorTrainerJobs/{account}/{job}", "/training/v1/serverless"};
}  // namespace

void fail_value(const std::string& name, const std::string& problem) { throw RequestError(ErrorCode::invalid_argument, name, name + " " + problem, 422); }

std::string text_field(const TrainingJson& json, const std::string& name, const std::string& standard) {
  const TrainingJson* value = field(json, name);
  if (!value) return standard;
  if (!value->is_string()) fail_value(name, fmt::format("is {}, allowed is a text", describe_json(*value)));
  return value->get<std::string>();
}
std::int64_t integer_field(const TrainingJson& json, const std::string& name, std::int64_t standard) {
  const TrainingJson* value = field(json, name);
  if (!value) return standard;
  if (!value->is_number_integer() || (value->is_number_unsigned() && value->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX))) fail_value(name, fmt::format("is {}, allowed is a whole number from -2^63 to 2^63 - 1", describe_json(*value)));
  return value->get<std::int64_t>();
}
void read_value(const TrainingJson& json, const std::string& name, const std::string& prefix, const std::function<void(const TrainingJson&, const std::string&)>& read) {
  const TrainingJson* value = field(json, name);
  if (!value) return;
  try {
    read(*value, prefix + name);
  } catch (const RequestError& e) {
    throw RequestError(e.code(), e.param(), e.message(), 422);
  }
}
double number_field(const TrainingJson& json, const std::string& name, double standard) {
  const TrainingJson* value = field(json, name);
  if (!value) return standard;
  if (!value->is_number() || !std::isfinite(value->get<double>())) fail_value(name, fmt::format("is {}, allowed is a finite number", describe_json(*value)));
  return value->get<double>();
}
std::optional<double> optional_number(const TrainingJson& json, const std::string& name) {
  return field(json, name) ? std::optional(number_field(json, name, 0)) : std::nullopt;
}
bool boolean_field(const TrainingJson& json, const std::string& name, bool standard) {
  const TrainingJson* value = field(json, name);
  if (!value) return standard;
  if (!value->is_boolean()) fail_value(name, fmt::format("is {}, allowed are true and false", describe_json(*value)));
  return value->get<bool>();
}
TrainingJson object_field(const TrainingJson& json, const std::string& name) {
  const TrainingJson* value = field(json, name);
  if (!value) return TrainingJson::object();
  if (!value->is_object()) fail_value(name, fmt::format("is {}, allowed is an object", describe_json(*value)));
  return *value;
}
std::string required_text(const TrainingJson& json, const std::string& name) {
  if (!field(json, name)) fail_value(name, "is missing");
  return text_field(json, name);
}
std::int64_t required_integer(const TrainingJson& json, const std::string& name) {
  if (!field(json, name)) fail_value(name, "is missing");
  return integer_field(json, name, 0);
}

bool TrainingCall::is_protobuf() const { return ascii_lower(request.content_type).find("protobuf") != std::string::npos; }

bool TrainingCall::speaks_fireworks() const {
  const std::string_view version = request.header("x-stainless-package-version");
  return !request.path.starts_with("/api/") || (!version.empty() && !version.starts_with("0."));
}

std::string TrainingCall::body() const {
  const std::string encoding = ascii_lower(request.header("content-encoding"));
  if (encoding.empty() || encoding == "identity") return request.body;
  if (encoding != "zstd") throw RequestError(ErrorCode::invalid_argument, {}, fmt::format("content-encoding is '{}', allowed are identity and zstd", shown(encoding)), 415);
  return decompressed(request.body, kMostBody);
}

TrainingJson TrainingCall::json() const {
  TrainingJson json = request.body.empty() ? TrainingJson::object() : read_json(body());
  if (!json.is_object()) throw RequestError(ErrorCode::invalid_argument, {}, "the body is no JSON object", 400);
  return json;
}

TrainingJson TrainingCall::metadata_field(const TrainingJson& json, const std::string& name) const {
  TrainingJson value = object_field(json, name);
  try {
    service.check_metadata(name, value);
  } catch (const Error& e) {
    throw RequestError(e.code(), name, e.message(), 422);
  }
  return value;
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

Outcome json_outcome(const TrainingJson& json) { return {"application/json", json.dump(-1, ' ', false, TrainingJson::error_handler_t::replace), {}, {}}; }

TrainingRoutes::TrainingRoutes(Routes& routes, std::shared_ptr<TrainingService> service)
    : routes_(routes), service_(std::move(service)), workers_(std::make_shared<std::vector<std::unique_ptr<Worker>>>()) {
  for (std::size_t i = 0; i < kDecoders; ++i) workers_->push_back(std::make_unique<Worker>(kMostWaitingBodies, 0));
}

void TrainingRoutes::add(const std::string& method, const std::string& path, Handler handler) {
  for (const char* prefix : kPrefixes) add_at_root(method, fmt::format("{}/api/v1/{}", prefix, path), handler);
}

void TrainingRoutes::add_row(const std::string& method, const std::string& path, Handler handler, bool needs_key) {
  routes_.add({method, path, [service = service_, workers = workers_, next = next_, handler = std::move(handler)](const ApiRequest& request, const std::shared_ptr<Responder>& out) {
                 const auto shared = std::make_shared<ApiRequest>(request);
                 // Bodies are long, and the store writes to disk: neither on the server's own thread.
                 const bool taken = (*workers)[(*next)++ % workers->size()]->post([service, shared, out, handler] {
                   try {
                     handler({*shared, out, *service, owner_of(*shared)});
                   } catch (const std::exception& e) {
                     out->send(detail_response(e));
                   }
                 });
                 if (!taken) throw Error(ErrorCode::resource_exhausted, "too many requests are waiting to be read; try again later");
               }, needs_key});
}

}  // namespace lockstep
