// Any bytes as a forward_backward of the Tinker protocol, plain or packed by zstd: a batch that the loss takes, or one error that says
// what is wrong; never more memory than a body may mean.
// sources: src/api/tinker/proto_codec.cpp src/api/tinker/proto_batch.cpp src/api/tinker/zstd_body.cpp src/host/loss_inputs.cpp
// sources: src/host/batch_loss_names.cpp src/losses/preference_losses.cpp src/train/kept_rows.cpp src/host/routing_matrix.cpp
// sources: src/model/expert_shape.cpp src/train/losses.cpp src/api/errors.cpp src/api/exchange.cpp src/api/percent.cpp
// sources: src/host/shared_prompts.cpp src/train/declared_prompts.cpp
#include <cstdint>
#include <string>

#include "api/tinker/proto_codec.h"
#include "api/tinker/zstd_body.h"
#include "fuzzed_batch.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMost = 1 << 20;
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  check_fuzzed_batch([&] {
    TextSource plain(body);
    ZstdSource packed(body, kMost);
    return decode_batch(data[0] % 2 == 1 ? static_cast<ByteSource&>(packed) : plain);
  });
  return 0;
}
