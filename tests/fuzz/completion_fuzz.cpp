// Any bytes as the body of POST /v1/completions and /v1/chat/completions: decoded, or refused as a fault of the client's.
// sources: src/api/openai/completion_request.cpp src/api/openai/no_op_fields.cpp src/api/openai/chat_request.cpp src/api/openai/chat_messages.cpp
// sources: src/api/openai/sampling_fields.cpp src/api/openai/service_tier.cpp src/api/openai/draft_fields.cpp src/api/openai/hold_fields.cpp
// sources: src/api/sampling_values.cpp src/api/json_fields.cpp src/api/harmless_fields.cpp src/api/errors.cpp src/engine/generation.cpp
// sources: src/engine/drafts/draft_options.cpp src/engine/drafts/*_source*.cpp src/engine/drafts/suffix_automaton.cpp
#include <cstdint>
#include <string_view>

#include "api/errors.h"
#include "api/openai/chat_request.h"
#include "api/openai/completion_request.h"
#include "base/log.h"

namespace {
template <class F>
void refused_or_done(F&& decode) {
  try {
    decode();
  } catch (const lockstep::RequestError& e) {
    const int status = lockstep::error_response(e).status;
    if (status < 400 || status > 499 || error_body(e).empty()) __builtin_trap();
  }
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep;
  set_log_level(LogLevel::off);
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  refused_or_done([&] {
    if (decode_completion(body).prompts.empty()) __builtin_trap();
  });
  refused_or_done([&] { (void)decode_chat(body); });
  return 0;
}
