#include "api/sampling_values.h"

#include <algorithm>

#include "serving/serving.h"

namespace lockstep {

float temperature_value(const Json& value, const std::string& field) {
  constexpr double kLeast = SamplingParameters::kLeastTemperature;
  const double t = value.is_number() ? value.get<double>() : -1;
  if (!(t == 0 || (t >= kLeast && t <= 100)))
    fail_field(field, fmt::format("is {}, allowed is 0 or a number from {} to 100", describe_json(value), SamplingParameters::kLeastTemperature));
  return static_cast<float>(t);
}

float top_p_value(const Json& value, const std::string& field) {
  const double p = value.is_number() ? value.get<double>() : 0;
  if (!(p > 0 && p <= 1)) fail_field(field, fmt::format("is {}, allowed is a number above 0 and at most 1", describe_json(value)));
  return std::max(static_cast<float>(p), std::numeric_limits<float>::min());
}

std::int32_t top_k_value(const Json& value, const std::string& field) {
  return static_cast<std::int32_t>(std::max<std::int64_t>(0, json_integer(value, field, -1, kMostId)));
}

std::uint64_t seed_value(const Json& value, const std::string& field) {
  if (!value.is_number_integer()) fail_field(field, fmt::format("is {}, allowed is an integer of 64 bits", describe_json(value)));
  return value.is_number_unsigned() ? value.get<std::uint64_t>() : static_cast<std::uint64_t>(value.get<std::int64_t>());
}

std::vector<std::int32_t> json_token_ids(const Json& array, const std::string& field, std::int64_t most) {
  if (!array.is_array()) fail_field(field, fmt::format("is {}, allowed is an array of token ids", describe_json(array)));
  std::vector<std::int32_t> ids;
  ids.reserve(array.size());
  for (std::size_t i = 0; i < array.size(); ++i) {
    const Json& value = array[i];
    // The name of each is made for those at fault alone: prompts have many.
    const bool fits = value.is_number_unsigned() ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most)
                                                 : value.is_number_integer() && value.get<std::int64_t>() >= 0 && value.get<std::int64_t>() <= most;
    if (!fits) json_integer(value, fmt::format("{}[{}]", field, i), 0, most);
    ids.push_back(static_cast<std::int32_t>(value.get<std::int64_t>()));
  }
  return ids;
}

}  // namespace lockstep
