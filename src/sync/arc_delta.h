// One tensor's delta as the package fireworks-delta-compression writes it: the XOR with the bytes before, through zlib (arc_v1) or zstd (arc_v2), and
// the Adler-32 of the result.
//   const std::string after = apply_arc(payload, before, "1703937");
// A payload is untrusted: it cannot decompress to more bytes than `base` has. Pure function.
#pragma once
#include <string>
#include <string_view>

namespace lockstep {

// Returns the new bytes, as many as the base has. Errors: corrupt_file (it decompresses to another size, or has another checksum); unsupported for
// what is neither zlib nor zstd.
std::string apply_arc(std::string_view payload, std::string_view base, const std::string& checksum);

}  // namespace lockstep
