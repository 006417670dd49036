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
  std::optional<std::int64_t> top_k;  // of a forward: tell the likeliest tokens of each row
  std::optional<Error> error;         // model and sequence could be read, the rest not: it names what is wrong
};
// Reads field by field, and takes its memory from ClientWork. Errors: invalid_argument: no such message; those of the source and of the memory.
BatchMessage decode_batch(ByteSource& source);

std::string encode_training(const TrainingOutput& output);
// What a sample's client asked for beside tokens, as far as the answer's form depends on it.
struct SampleForm {
  bool top_of_prompt = false, top_of_samples = false;
  std::optional<PromptTargets> targets;
  std::int64_t draws = 0;  // prompt_alt_tokens_k
};
std::string encode_sample(const SamplingResult& result, const SampleForm& form);

inline constexpr const char* kProtobufType = "application/x-protobuf";

}  // namespace lockstep
