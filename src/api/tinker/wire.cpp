#include "api/tinker/wire.h"

#include <cmath>

#include "api/body_budget.h"
#include "api/errors.h"
#include "api/harmless_fields.h"
#include "api/json_fields.h"
#include "api/percent.h"
#include "api/tinker/zstd_body.h"
#include "base/ascii.h"
#include "base/bounded_json.h"

namespace lockstep {
namespace {
constexpr std::size_t kMostBody = std::size_t{512} << 20;  // decompressed
constexpr std::size_t kShortBody = 32 << 10;

const TrainingJson* field(const TrainingJson& json, const std::string& name) {
  const auto found = json.find(name);
  return found == json.end() || found->is_null() ? nullptr : &*found;
}

bool is_plain(const ApiRequest& request) {
  const std::string encoding = ascii_lower(request.header("content-encoding"));
  return encoding.empty() || encoding == "identity";
}

// What a batch takes, about, with what its containers keep.
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
}  // namespace

void fail_value(const std::string& name, const std::string& problem) { throw RequestError(ErrorCode::invalid_argument, name, name + " " + problem, 422); }

std::string text_field(const TrainingJson& json, const std::string& name, const std::string& standard) {
  const TrainingJson* value = field(json, name);
  if (!value) return standard;
  if (!value->is_string()) fail_value(name, fmt::format("is {}, allowed is a text", describe_json(*value)));
  return value->get<std::string>();
}
std::int64_t integer_field(const TrainingJson& json, const std::string& name, std::int64_t standard) {
  const auto value = json.find(name);
  if (value == json.end()) return standard;
  if (!value->is_number_integer() || (value->is_number_unsigned() && value->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)))
    fail_value(name, fmt::format("is {}, allowed is a whole number from -2^63 to 2^63 - 1", describe_json(*value)));
  return value->get<std::int64_t>();
}
void read_value(const TrainingJson& json, const std::string& name, const std::string& prefix, const ValueReader& read) {
  if (field(json, name)) read_number(json, name, prefix, read);
}
void read_number(const TrainingJson& json, const std::string& name, const std::string& prefix, const ValueReader& read) {
  const auto value = json.find(name);
  if (value == json.end()) return;
  try {
    read(*value, prefix + name);
  } catch (const RequestError& e) {
    throw RequestError(e.code(), e.param(), e.message(), 422);
  }
}
double number_field(const TrainingJson& json, const std::string& name, double standard) {
  const auto value = json.find(name);
  if (value == json.end()) return standard;
  if (!value->is_number() || !std::isfinite(value->get<double>())) fail_value(name, fmt::format("is {}, allowed is a finite number", describe_json(*value)));
  return value->get<double>();
}
std::optional<std::int64_t> optional_integer(const TrainingJson& json, const std::string& name) {
  return field(json, name) ? std::optional(integer_field(json, name, 0)) : std::nullopt;
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
TrainingJson list_field(const TrainingJson& json, const std::string& name) {
  const TrainingJson* value = field(json, name);
  if (!value) return {};
  if (!value->is_array()) fail_value(name, fmt::format("is {}, allowed is a list", describe_json(*value)));
  return *value;
}
std::string required_text(const TrainingJson& json, const std::string& name) {
  if (!field(json, name)) fail_value(name, "is missing");
  return text_field(json, name);
}
std::int64_t required_integer(const TrainingJson& json, const std::string& name) {
  if (!json.contains(name)) fail_value(name, "is missing");
  return integer_field(json, name, 0);
}

std::int64_t model_number(const TrainingJson& json) {
  const std::int64_t number = required_integer(json, "model_seq_id");
  if (number < 0) fail_value("model_seq_id", fmt::format("is {}, allowed is at least 0", number));
  return number;
}

bool is_given(const TrainingJson& json, const std::string& name) { return field(json, name) != nullptr; }

void check_text_chunk(const TrainingJson& chunk, const std::string& name) {
  for (const auto& [key, value] : chunk.items())
    if (key != "type" && key != "tokens" && !value.is_null())
      fail_value(fmt::format("{}.{}", name, shown(key)), "is given in a chunk of encoded_text, allowed are type and tokens");
}

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
    const TrainingJson* model = field(json, "model_id");
    const TrainingJson* sequence = field(json, "seq_id");
    if (model && model->is_string() && sequence && sequence->is_number_integer())
      throw UnknownFieldOfOperation(e, model->get<std::string>(), required_integer(json, "seq_id"));
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

Outcome json_outcome(const TrainingJson& json) { return {"application/json", json.dump(-1, ' ', false, TrainingJson::error_handler_t::replace), {}, {}}; }

std::vector<std::string> known_query(std::initializer_list<const char*> names, std::initializer_list<const char*> harmless) {
  std::vector<std::string> all(names.begin(), names.end());
  for (const char* name : harmless) {
    if (harmless_reason(name).empty()) fail(ErrorCode::internal, "the query parameter {} is on no list of harmless ones", name);
    all.emplace_back(name);
  }
  return all;
}

JsonFields known_fields(std::initializer_list<const char*> names, std::initializer_list<const char*> harmless) {
  JsonFields fields;
  fields.taken(names);
  for (const char* name : harmless) fields.harmless(name);
  return fields;
}

}  // namespace lockstep
