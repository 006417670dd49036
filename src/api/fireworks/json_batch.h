// The JSON form of forward and forward_backward, as the `fireworks-ai` package sends it. Its memory is taken from ClientWork. Pure function.
//   const BatchMessage message = decode_json_batch(read_json(source, kBatchJson), "forward_backward_input");
#pragma once
#include "api/json_fields.h"
#include "api/tinker/proto_codec.h"
#include "base/bounded_json.h"
#include "host/training_records.h"

namespace lockstep {

inline constexpr JsonLimits kBatchJson{.compact_numbers = true};

// The fields of an envelope, for api/tinker/training_routes.h.
JsonFields batch_fields();
// `envelope`: the field that holds data and loss. Errors: invalid_argument without model_id and seq_id; those of the memory.
BatchMessage decode_json_batch(TrainingJson json, const std::string& envelope);

}  // namespace lockstep
