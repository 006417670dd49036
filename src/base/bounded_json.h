// Parses JSON from untrusted sources within limits on nesting and on the keys of an object, in time linear in the text's length.
//   const nlohmann::ordered_json json = read_json(body);
// Nesting is limited since copying and writing a value recurse; keys are limited since a look-up compares with every key of its object. Asks
// ClientWork, so a client that disconnects stops it, and its memory is counted. Knows no field. Pure functions.
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
  std::int64_t key_comparisons =
      8'000'000;  // in the whole text, if each new key were compared with all others of its object; one object of 4,000 keys, or many small ones
  // Arrays that hold only numbers become JsonNumbers: half the memory or less.
  bool compact_numbers = false;
};

// Throws invalid_argument with what is wrong, and in which field, to be put behind a name: "nests deeper than 64 levels",
// "is not JSON: fault at byte 9 of 12, in adam_params.eps; JSON has no NaN and no Infinity", "has a number that no double holds, in stop[1]".
nlohmann::ordered_json read_json(std::string_view text, const JsonLimits& limits = {});
// The same for a text that arrives in pieces.
nlohmann::ordered_json read_json(ByteSource& source, const JsonLimits& limits = {});
// The same, but null where read_json would throw.
nlohmann::ordered_json read_json_or_null(std::string_view text, const JsonLimits& limits = {});
// A text that this program wrote down and reads again: without limits, and on nobody's account. nlohmann's own parser compares each key with all
// before it.
nlohmann::ordered_json read_own_json(std::string_view text);

// An array of numbers, [1, 2, 3], in the form that JsonLimits::compact_numbers reads it into.
struct JsonNumbers {
  std::vector<std::int64_t> whole;  // when all are integers of at most 64 bits
  std::vector<float> real;          // otherwise; rounded from doubles
  std::size_t first_real = 0;       // index of the first that is no integer
  bool is_whole() const { return real.empty(); }
  std::size_t size() const { return is_whole() ? whole.size() : real.size(); }
};
// Empty when the value is no such array; an empty JSON array gives zero numbers.
std::optional<JsonNumbers> json_numbers(const nlohmann::ordered_json& value);

}  // namespace lockstep
