// JSON from outside, read within bounds: nesting (a deep value ends a process when it is copied or written, which recurse) and
// the keys of objects (whoever looks one up later compares it with all of its object). Time grows with the text's length, whatever
// its form. Asks ClientWork, so a client who leaves stops it, and its memory is counted. Knows no field. Pure functions.
//   const nlohmann::ordered_json json = read_json(body);
#pragma once
#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/byte_source.h"

namespace lockstep {

struct JsonLimits {
  std::size_t depth = 64;
  std::int64_t key_comparisons = 8'000'000;  // in all, if each new key were compared with all others of its object; one object of 4,000 keys, or many small ones
  // Arrays of numbers alone become PackedNumbers: half the memory or less.
  bool pack_numbers = false;
};

// Throws invalid_argument with what is wrong, to be put behind a name: "nests deeper than 64 levels", "is not JSON: fault at byte 3 of 9".
nlohmann::ordered_json read_json(std::string_view text, const JsonLimits& limits = {});
// The same of what comes in pieces.
nlohmann::ordered_json read_json(ByteSource& source, const JsonLimits& limits = {});
// The same, or null for all that read_json refuses.
nlohmann::ordered_json read_json_or_null(std::string_view text, const JsonLimits& limits = {});

// An array of numbers, [1, 2, 3], as JsonLimits::pack_numbers has it read.
struct PackedNumbers {
  std::vector<std::int64_t> whole;  // when all are whole and of 64 bits
  std::vector<float> real;          // else; rounded from their doubles
  std::size_t first_real = 0;       // the first that is not whole, where some are
  bool is_whole() const { return real.empty(); }
  std::size_t size() const { return is_whole() ? whole.size() : real.size(); }
};
// Nothing where the value is no such array; an empty array is one of no numbers.
std::optional<PackedNumbers> packed_numbers(const nlohmann::ordered_json& value);

}  // namespace lockstep
