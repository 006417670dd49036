// Base64 (RFC 4648): bytes as text.
//   to_base64("ab") == "YWI="      from_base64("YWI=").bytes == "ab"      from_base64("YW*=").fault: "has the byte 0x2a at 2, which base64 has not"
#pragma once
#include <string>
#include <string_view>

namespace lockstep {

enum class Base64 { standard, url };  // url: '-' and '_' for '+' and '/', without padding

std::string to_base64(std::string_view bytes, Base64 form = Base64::standard);

struct DecodedBase64 {
  std::string bytes;
  std::string fault;  // what the text does wrong, to stand behind its name; empty: nothing
};
// Strict: each text that is accepted is the one that to_base64 makes of its bytes.
DecodedBase64 from_base64(std::string_view text, Base64 form = Base64::standard);

}  // namespace lockstep
