// The protobuf half of the Tinker protocol: requests of forward and forward_backward, their results, and results of samples. Byte arrays are
// little-endian and row-major. Pure functions.
//   const BatchMessage message = decode_batch(body); ... encode_training(output)
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "api/tinker/prompt_targets.h"
#include "base/byte_source.h"
#include "base/error.h"
#include "host/sampling_request.h"
#include "losses/datum.h"

namespace lockstep {

struct BatchMessage {
  std::string model;
  std::int64_t sequence = 0;
  TrainingBatch batch;
  std::optional<std::int64_t> top_k;  // of a forward: how many of each row's likeliest tokens to return
  std::optional<Error> error;         // what is wrong with the batch, if only `model` and `sequence` could be read
};
// Reads field by field, and takes its memory from ClientWork. Errors: invalid_argument if the body is no such message; those of the source and of
// the memory.
BatchMessage decode_batch(ByteSource& source);

std::string encode_training(const TrainingOutput& output);
// The parts of a request to sample on which the form of its answer depends.
struct SampleForm {
  bool top_of_prompt = false, top_of_samples = false;
  std::optional<PromptTargets> targets;
  std::int64_t draws = 0;  // prompt_alt_tokens_k
};
std::string encode_sample(const SamplingResult& result, const SampleForm& form);

inline constexpr const char* kProtobufType = "application/x-protobuf";

}  // namespace lockstep
