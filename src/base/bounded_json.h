// JSON from outside, read within bounds: nesting (a deep value ends a process when it is copied or written, which recurse) and
// the keys of objects (each new key is compared with all others of its object). Knows no field. Pure functions.
//   const nlohmann::ordered_json json = read_json(body);
#pragma once
#include <nlohmann/json.hpp>

#include <cstdint>
#include <string_view>

namespace lockstep {

struct JsonLimits {
  std::size_t depth = 64;
  std::int64_t key_comparisons = 8'000'000;  // in all; one object of 4,000 keys, or many small ones: about 0.1 s
};

// Throws invalid_argument with what is wrong, to be put behind a name: "nests deeper than 64 levels", "is not JSON: fault at byte 3 of 9".
nlohmann::ordered_json read_json(std::string_view text, const JsonLimits& limits = {});
// The same, or null for all that read_json refuses.
nlohmann::ordered_json read_json_or_null(std::string_view text, const JsonLimits& limits = {});

}  // namespace lockstep
