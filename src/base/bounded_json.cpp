#include "base/bounded_json.h"

#include <cmath>
#include <vector>

#include "base/error.h"

namespace lockstep {

using Json = nlohmann::ordered_json;

Json read_json(std::string_view text, const JsonLimits& limits) {
  std::vector<std::int64_t> keys;  // of every object and array that is open
  std::int64_t comparisons = 0;
  const auto bounded = [&](int, Json::parse_event_t event, Json&) {
    switch (event) {
      case Json::parse_event_t::object_start:
      case Json::parse_event_t::array_start:
        keys.push_back(0);
        if (keys.size() > limits.depth) fail(ErrorCode::invalid_argument, "nests deeper than {} levels", limits.depth);
        break;
      case Json::parse_event_t::object_end:
      case Json::parse_event_t::array_end: keys.pop_back(); break;
      case Json::parse_event_t::key:
        if ((comparisons += keys.back()++) > limits.key_comparisons)
          fail(ErrorCode::invalid_argument, "has too many keys, allowed are {:.0f} in one object", std::sqrt(2.0 * static_cast<double>(limits.key_comparisons)));
        break;
      case Json::parse_event_t::value: break;
    }
    return true;
  };
  try {
    return Json::parse(text, bounded);
  } catch (const Json::parse_error& e) {
    fail(ErrorCode::invalid_argument, "is not JSON: fault at byte {} of {}", e.byte, text.size());
  } catch (const Json::out_of_range&) {
    fail(ErrorCode::invalid_argument, "has a number that no double holds");
  }
}

Json read_json_or_null(std::string_view text, const JsonLimits& limits) {
  try {
    return read_json(text, limits);
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace lockstep
