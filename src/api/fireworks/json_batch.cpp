#include "api/fireworks/json_batch.h"

#include <cmath>

#include "api/errors.h"
#include "api/tinker/sparse.h"
#include "api/tinker/wire_fields.h"
#include "base/client_work.h"

namespace lockstep {
namespace {

template <class T>
std::vector<T> numbers(const TrainingJson& json, const std::string& where) {
  const char* const wanted = std::is_integral_v<T> ? "whole number" : "number";
  if (std::optional<JsonNumbers> found = json_numbers(json)) {
    ClientWork::take(found->size() * sizeof(T));
    if (std::is_integral_v<T> && !found->is_whole()) fail(ErrorCode::invalid_argument, "{}[{}] is no {}", where, found->first_real, wanted);
    if constexpr (std::is_same_v<T, std::int64_t>) return std::move(found->whole);
    else if (!found->is_whole()) return std::move(found->real);
    std::vector<T> values;
    values.reserve(found->size());
    for (const std::int64_t one : found->whole) values.push_back(static_cast<T>(static_cast<double>(one)));
    return values;
  }
  if (!json.is_array()) fail(ErrorCode::invalid_argument, "{} is no list of numbers", where);
  std::vector<T> values;
  values.reserve(json.size());
  for (const TrainingJson& one : json) {
    if (std::is_integral_v<T> ? !one.is_number_integer() : !one.is_number()) fail(ErrorCode::invalid_argument, "{}[{}] is no {}", where, values.size(), wanted);
    values.push_back(static_cast<T>(one.get<std::conditional_t<std::is_integral_v<T>, std::int64_t, double>>()));
  }
  return values;
}

// Moves the object `name` out of `json`.
TrainingJson taken_object(TrainingJson& json, const std::string& name) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_object()) return object_field(json, name);  // {}, or the error of another type
  return std::exchange(*found, TrainingJson());
}

NamedTensor tensor_of_json(const TrainingJson& json, const std::string& where, DenseRoom& room) {
  if (!json.is_object()) fail(ErrorCode::invalid_argument, "{} is no tensor", where);
  const std::string dtype = text_field(json, "dtype", "float32");
  if (dtype != "float32" && dtype != "int64") fail(ErrorCode::invalid_argument, "{}.dtype is '{}', allowed are float32 and int64", where, shown(dtype));
  NamedTensor tensor;
  tensor.is_float = dtype == "float32";
  if (json.contains("shape") && !json["shape"].is_null()) tensor.shape = numbers<std::int64_t>(json["shape"], where + ".shape");
  const bool sparse = json.contains("sparse_crow_indices") && !json["sparse_crow_indices"].is_null();
  if (!sparse && is_given(json, "sparse_col_indices"))
    fail(ErrorCode::invalid_argument, "{}.sparse_col_indices is given without sparse_crow_indices, allowed are both or none", where);
  const TrainingJson none, &data = json.contains("data") ? json["data"] : none;
  const auto read = [&]<class T>(std::vector<T>& into) {
    into = numbers<T>(data, where + ".data");
    if (sparse) {
      room.take(checked_size(tensor.shape, where), where);
      into =
          dense_of_csr(into, numbers<std::int64_t>(json["sparse_crow_indices"], where + ".sparse_crow_indices"),
                       numbers<std::int64_t>(json.contains("sparse_col_indices") ? json["sparse_col_indices"] : TrainingJson(), where + ".sparse_col_indices"),
                       tensor.shape, where);
    }
    settle_shape(tensor.shape, into.size(), where);
  };
  if (tensor.is_float) read(tensor.floats);
  else read(tensor.integers);
  return tensor;
}

// A text for each position (base64 or ""); an empty list: the trainer routes every position itself.
std::vector<std::string> routing_of_json(const TrainingJson& input, const std::string& where) {
  for (const char* name : {"routing_references", "top_sampling_references", "sampling_mask_references"})
    if (input.contains(name) && !input[name].is_null())
      fail(ErrorCode::unsupported, "{}.{} is given; allowed are routing_matrices in the request itself", where, name);
  if (const std::string format = text_field(input, "routing_matrix_format", "base64_inline"); format != "base64_inline")
    fail(ErrorCode::unsupported, "{}.routing_matrix_format is '{}', allowed is base64_inline", where, shown(format));
  std::vector<std::string> matrices;
  if (!input.contains("routing_matrices") || input["routing_matrices"].is_null()) return matrices;
  const TrainingJson& list = input["routing_matrices"];
  if (!list.is_array() || list.empty()) fail(ErrorCode::invalid_argument, "{}.routing_matrices is no list of texts, one a position", where);
  for (const TrainingJson& one : list) {
    if (!one.is_string()) fail(ErrorCode::invalid_argument, "{}.routing_matrices[{}] is no text, allowed is base64, or \"\"", where, matrices.size());
    matrices.push_back(one.get<std::string>());
  }
  return matrices;
}

// Frees each part of `json` once it is read.
TrainingDatum datum_of_json(TrainingJson& json, const std::string& where, DenseRoom& room) {
  if (!json.is_object()) fail(ErrorCode::invalid_argument, "{} is no object", where);
  ClientWork::take(sizeof(TrainingDatum));
  TrainingDatum datum;
  const TrainingJson input = taken_object(json, "model_input");
  const TrainingJson none, &chunks = input.contains("chunks") ? input["chunks"] : none;
  if (!chunks.is_array()) fail(ErrorCode::invalid_argument, "{}.model_input.chunks is missing, or no list", where);
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    const std::string name = fmt::format("{}.model_input.chunks[{}]", where, c);
    if (!chunks[c].is_object() || text_field(chunks[c], "type", "encoded_text") != "encoded_text")
      fail(ErrorCode::unsupported, "{} is no encoded_text; the model takes tokens only", name);
    check_text_chunk(chunks[c], name);
    for (const std::int64_t token : numbers<std::int64_t>(chunks[c].contains("tokens") ? chunks[c]["tokens"] : TrainingJson(), name + ".tokens")) {
      if (token != static_cast<std::int32_t>(token))
        fail(ErrorCode::invalid_argument, "{}.tokens holds {}, allowed are token ids from 0 to {}", name, token, INT32_MAX);
      datum.tokens.push_back(static_cast<std::int32_t>(token));
    }
  }
  datum.routing_matrices = routing_of_json(input, where + ".model_input");
  TrainingJson inputs = taken_object(json, "loss_fn_inputs");
  for (auto& [name, tensor] : inputs.items()) {
    ClientWork::take(sizeof(NamedTensor) + name.size());
    datum.inputs[name] = tensor_of_json(tensor, fmt::format("{}.loss_fn_inputs.{}", where, name), room);
    tensor = nullptr;
  }
  return datum;
}

}  // namespace

JsonFields batch_fields() {
  JsonFields datum, input, tensor, chunk, batch;
  chunk.taken({"type", "tokens", "data", "format", "location", "expected_tokens", "dmel"});  // the type says what is not offered
  input.each("chunks", chunk);
  input.taken({"routing_matrices", "routing_references", "routing_matrix_format", "top_sampling_references", "sampling_mask_references"});
  datum.inside("model_input", std::move(input));
  tensor.taken({"data", "dtype", "shape", "sparse_crow_indices", "sparse_col_indices"});
  datum.inside_all("loss_fn_inputs", std::move(tensor));
  for (const char* name : {"model_input_spans", "loss_fn_input_spans"}) datum.harmless(name);
  batch.each("data", std::move(datum));
  batch.taken({"loss_fn", "loss_fn_config"});
  return batch;
}

BatchMessage decode_json_batch(TrainingJson json, const std::string& envelope) {
  BatchMessage out;
  out.model = required_text(json, "model_id");
  out.sequence = required_integer(json, "seq_id");
  try {
    TrainingJson input = taken_object(json, envelope);
    out.batch.loss.dialect = LossDialect::fireworks;
    out.batch.loss.name = text_field(input, "loss_fn", "cross_entropy");
    const TrainingJson config = object_field(input, "loss_fn_config");
    for (const auto& [name, value] : config.items()) {
      if (name == "top_k" && envelope == "forward_input") {
        const double top_k = number_field(config, name, 0);  // the client may write 5.0
        if (top_k != std::floor(top_k) || std::abs(top_k) > 1e9)
          fail(ErrorCode::invalid_argument, "loss_fn_config.top_k is {}, allowed are whole numbers", top_k);
        out.top_k = static_cast<std::int64_t>(top_k);
        continue;
      }
      if (value.is_boolean()) out.batch.loss.config[name] = value.get<bool>();
      else if (value.is_number()) out.batch.loss.config[name] = value.get<double>();
      else if (value.is_string()) out.batch.loss.config[name] = value.get<std::string>();
      else fail(ErrorCode::invalid_argument, "loss_fn_config.{} is {}, allowed are finite numbers, texts, true and false", shown(name), describe_json(value));
    }
    TrainingJson none, &data = input.contains("data") ? input["data"] : none;
    if (!data.is_array()) fail(ErrorCode::invalid_argument, "{}.data is missing, or no list", envelope);
    DenseRoom room;
    for (std::size_t d = 0; d < data.size(); ++d) {
      ClientWork::check();
      out.batch.data.push_back(datum_of_json(data[d], fmt::format("data[{}]", d), room));
      data[d] = nullptr;
    }
  } catch (const Error& e) {
    if (e.code() == ErrorCode::resource_exhausted || e.code() == ErrorCode::cancelled) throw;  // may succeed later, so it uses no sequence number
    out.error = e;
    out.batch.data.clear();
  }
  return out;
}

}  // namespace lockstep
