// Any bytes as the body of POST /v1/completions: decoded, or refused as a fault of the client's.
// sources: src/api/openai/completion_request.cpp src/api/json_fields.cpp src/api/errors.cpp
#include <cstdint>
#include <string_view>

#include "api/errors.h"
#include "api/openai/completion_request.h"
#include "base/log.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep;
  set_log_level(LogLevel::off);
  try {
    const CompletionRequest request = decode_completion(std::string_view(reinterpret_cast<const char*>(data), size));
    if (request.prompts.empty() || request.n < 1) __builtin_trap();
  } catch (const RequestError& e) {
    const int status = error_response(e).status;
    if (status < 400 || status > 499) __builtin_trap();
  }
  return 0;
}
