// Any bytes as a forward_backward of Fireworks' package: a batch that the loss takes, or one error that says what is wrong.
// sources: src/api/fireworks/json_batch.cpp src/api/tinker/wire_fields.cpp src/api/json_fields.cpp src/api/harmless_fields.cpp
// sources: src/api/tinker/zstd_body.cpp src/api/tinker/json_head.cpp src/api/request_pool.cpp src/api/body_budget.cpp src/observe/*.cpp
// sources: src/api/routes.cpp src/api/access.cpp src/api/api_keys.cpp src/api/json_web_token.cpp src/api/errors.cpp src/api/exchange.cpp
// sources: src/api/percent.cpp src/host/loss_inputs.cpp src/host/batch_loss_names.cpp src/losses/preference_losses.cpp src/train/kept_rows.cpp
// sources: src/host/routing_matrix.cpp src/model/expert_shape.cpp src/train/losses.cpp src/host/shared_prompts.cpp src/train/declared_prompts.cpp
#include <cstdint>
#include <string>

#include "api/fireworks/json_batch.h"
#include "api/tinker/body_head.h"
#include "base/bounded_json.h"
#include "fuzzed_batch.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_fuzzed_batch([&]() -> BatchMessage {
    TrainingJson json = read_json(text, kBatchJson);
    if (!json.is_object()) fail(ErrorCode::invalid_argument, "no object");
    TextSource head(text);
    const std::optional<std::string> model = json_field(head, "model_id");
    BatchMessage message = decode_json_batch(std::move(json), "forward_backward_input");
    if (message.model.size() < 100 && !model) __builtin_trap();  // what it names was found beforehand
    return message;
  });
  return 0;
}
