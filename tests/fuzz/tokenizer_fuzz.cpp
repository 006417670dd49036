// Any bytes as tokenizer.json: an Error, or a tokenizer that encodes and decodes without harm.
// sources: src/text/*.cpp src/text/tokenizer/*.cpp
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "text/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep;
  try {
    const Tokenizer tokenizer = Tokenizer::from_json(std::string_view(reinterpret_cast<const char*>(data), size));
    const std::vector<std::int32_t> ids = tokenizer.encode("a b 12 \xC3\xA9 <x>", true);
    (void)tokenizer.decode(ids, false);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::internal) __builtin_trap();
  }
  return 0;
}
