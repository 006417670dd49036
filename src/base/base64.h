// Base64 (RFC 4648) encoding and decoding.
//   to_base64("ab") == "YWI="; from_base64("YWI=").bytes == "ab"; from_base64("YW*=").fault;  // "has the byte 0x2a at 2, which base64 has not"
#pragma once
#include <string>
#include <string_view>

namespace lockstep {

enum class Base64 { standard, url };  // url: '-' and '_' for '+' and '/', without padding

std::string to_base64(std::string_view bytes, Base64 form = Base64::standard);

struct DecodedBase64 {
  std::string bytes;
  std::string fault;  // what is wrong, to be put behind the text's name; empty: nothing
};
// Strict: accepts only what to_base64 would produce.
DecodedBase64 from_base64(std::string_view text, Base64 form = Base64::standard);

}  // namespace lockstep
