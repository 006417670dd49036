// Any bytes as a forward_backward of Fireworks' package: a batch that the loss takes, or one error that says what is wrong.
// sources: src/api/fireworks/json_batch.cpp src/api/tinker/wire.cpp src/api/tinker/zstd_body.cpp src/api/worker.cpp src/api/routes.cpp src/api/access.cpp src/api/api_keys.cpp src/api/json_web_token.cpp src/api/errors.cpp src/api/exchange.cpp src/api/percent.cpp src/service/training/loss_inputs.cpp src/train/losses.cpp
#include <cstdint>
#include <string>

#include "api/fireworks/json_batch.h"
#include "base/bounded_json.h"
#include "service/training/loss_inputs.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const TrainingJson json = read_json(text);
    if (!json.is_object()) return 0;
    const BatchMessage message = decode_json_batch(json, "forward_backward_input");
    if (message.error) {
      if (std::string(message.error->what()).empty() || !message.batch.data.empty()) __builtin_trap();
      return 0;
    }
    const PreparedBatch prepared = prepare_batch(message.batch, {.vocabulary = 100, .max_positions = 64});
    if (prepared.sequences.size() != message.batch.data.size()) __builtin_trap();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::invalid_argument && e.code() != ErrorCode::unsupported) __builtin_trap();
    if (std::string(e.what()).empty()) __builtin_trap();
  }
  return 0;
}
