#include "api/tinker/proto_codec.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <bit>

#include "api/tinker/tinker_public.pb.h"

namespace lockstep {
namespace {
static_assert(std::endian::native == std::endian::little);
namespace pb = tinker_public;

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

// Writes maps in the order of their keys, so that equal results have equal bytes.
std::string serialized(const google::protobuf::MessageLite& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  message.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

pb::TopkLogprobs top_message(const std::vector<std::vector<TokenLogprob>>& rows) {
  std::size_t k = 0;
  for (const auto& row : rows) k = std::max(k, row.size());
  std::vector<std::int32_t> ids;
  std::vector<float> logprobs;
  for (const auto& row : rows)
    for (std::size_t i = 0; i < k; ++i) {
      ids.push_back(i < row.size() ? row[i].id : 0);
      logprobs.push_back(i < row.size() ? row[i].logprob : -99999.0f);  // an empty cell
    }
  pb::TopkLogprobs message;
  message.set_token_ids(bytes_of(ids));
  message.set_logprobs(bytes_of(logprobs));
  message.set_k(static_cast<std::uint32_t>(k));
  message.set_length(static_cast<std::uint32_t>(rows.size()));
  return message;
}

void shape_tensor(pb::Tensor& tensor, pb::DType dtype, const std::vector<std::int64_t>& shape) {
  tensor.set_dtype(dtype);
  for (const std::int64_t n : shape) tensor.add_shape(n);
}

}  // namespace

std::string encode_training(const TrainingOutput& output) {
  pb::ForwardBackwardOutput message;
  message.set_loss_fn_output_type("ArrayRecord");
  for (const auto& [name, value] : output.metrics) (*message.mutable_metrics())[name] = value;
  // One record for consecutive datums whose targets have the same shape apart from the first dimension.
  const auto trailing = [](const DatumOutput& d) { return std::vector<std::int64_t>(d.shape.begin() + 1, d.shape.end()); };
  for (std::size_t begin = 0; begin < output.data.size();) {
    std::size_t end = begin + 1;
    while (end < output.data.size() && trailing(output.data[end]) == trailing(output.data[begin])) ++end;
    pb::ArrayRecord& record = *message.add_loss_fn_outputs();
    record.set_type_tag("ArrayRecord");
    record.set_num_datums(static_cast<std::int64_t>(end - begin));
    const auto field = [&](const char* name, const std::vector<float> DatumOutput::*values) {
      pb::BatchedTensor& tensor = (*record.mutable_fields())[name];
      tensor.set_dtype(pb::FLOAT32);
      for (const std::int64_t n : trailing(output.data[begin])) tensor.add_trailing_shape(n);
      std::vector<std::int64_t> offsets{0};
      for (std::size_t d = begin; d < end; ++d) {
        tensor.mutable_data()->append(bytes_of(output.data[d].*values));
        offsets.push_back(static_cast<std::int64_t>(tensor.data().size()));
      }
      tensor.set_offsets(bytes_of(offsets));
    };
    field(output.data[begin].values ? "values" : "logprobs", &DatumOutput::logprobs);
    if (!output.data[begin].elementwise_loss.empty()) field("elementwise_loss", &DatumOutput::elementwise_loss);
    if (const std::int64_t k = output.data[begin].top_k; k > 0) {
      const auto rows_of_k = [&](const char* name, pb::DType dtype, const auto& values) {
        pb::BatchedTensor& tensor = (*record.mutable_fields())[name];
        tensor.set_dtype(dtype);
        tensor.add_trailing_shape(k);
        std::vector<std::int64_t> offsets{0};
        for (std::size_t d = begin; d < end; ++d) {
          tensor.mutable_data()->append(bytes_of(output.data[d].*values));
          offsets.push_back(static_cast<std::int64_t>(tensor.data().size()));
        }
        tensor.set_offsets(bytes_of(offsets));
      };
      rows_of_k("top_k_logprobs", pb::FLOAT32, &DatumOutput::top_k_logprobs);
      rows_of_k("top_k_indices", pb::INT64, &DatumOutput::top_k_indices);
    }
    begin = end;
  }
  return serialized(message);
}

std::string encode_sample(const SamplingResult& result, const SampleForm& form) {
  pb::SampleResponse message;
  for (const SampledSequence& s : result.sequences) {
    pb::SampledSequence& sequence = *message.add_sequences();
    sequence.set_stop_reason(s.stopped ? pb::STOP : pb::LENGTH);
    sequence.set_tokens(bytes_of(s.tokens));
    sequence.set_logprobs(bytes_of(s.logprobs));
    if (form.top_of_samples) *sequence.mutable_topk_sampled_logprobs() = top_message(s.top);
  }
  if (!result.prompt_logprobs.empty()) message.set_prompt_logprobs(bytes_of(result.prompt_logprobs));
  if (form.top_of_prompt) *message.mutable_topk_prompt_logprobs() = top_message(result.prompt_top);
  if (form.targets) {
    pb::Tensor& tensor = *message.mutable_target_prompt_logprobs();
    shape_tensor(tensor, pb::FLOAT32, form.targets->shape);
    const std::string values = bytes_of(form.targets->as_it_came(result.prompt_target_logprobs));
    if (form.targets->sparse) {
      tensor.mutable_sparse_csr()->set_values(values);
      tensor.mutable_sparse_csr()->set_crow_indices(bytes_of(form.targets->row_begin));
      tensor.mutable_sparse_csr()->set_col_indices(bytes_of(form.targets->column));
    } else {
      tensor.set_dense(values);
    }
  }
  if (form.draws > 0) {
    const std::vector<std::int64_t> shape{static_cast<std::int64_t>(result.prompt_draws.size()) / form.draws, form.draws};
    std::vector<std::int64_t> ids;
    std::vector<float> logprobs;
    for (const TokenLogprob& one : result.prompt_draws) {
      ids.push_back(one.id);
      logprobs.push_back(one.logprob);
    }
    pb::PromptAltTokens& alternatives = *message.mutable_prompt_alt_tokens();
    shape_tensor(*alternatives.mutable_tokens(), pb::INT64, shape);
    alternatives.mutable_tokens()->set_dense(bytes_of(ids));
    shape_tensor(*alternatives.mutable_logprobs(), pb::FLOAT32, shape);
    alternatives.mutable_logprobs()->set_dense(bytes_of(logprobs));
  }
  message.set_prompt_cache_hit_tokens(static_cast<std::int32_t>(result.cached_tokens));
  return serialized(message);
}

}  // namespace lockstep
