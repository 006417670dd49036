// Reads values of sampling fields from JSON, for every API: in the type they were sent, narrowed only after the check, so that nothing wraps or is
// rounded to another meaning. Pure functions; RequestErrors name the field, the value and what is allowed.
//   s.temperature = temperature_value(json["temperature"], "temperature");
#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "api/json_fields.h"

namespace lockstep {

inline constexpr std::int32_t kMostId = std::numeric_limits<std::int32_t>::max();  // of token ids, and of numbers of tokens

float temperature_value(const Json& value, const std::string& field);   // 0, or SamplingParameters::kLeastTemperature to 100
float top_p_value(const Json& value, const std::string& field);         // above 0 to 1
std::int32_t top_k_value(const Json& value, const std::string& field);  // -1 (all) and 0 (all) give 0
std::uint64_t seed_value(const Json& value, const std::string& field);  // 64 bits, with or without a sign
// Ids from 0 to `most`.
std::vector<std::int32_t> json_token_ids(const Json& array, const std::string& field, std::int64_t most = kMostId);

}  // namespace lockstep
