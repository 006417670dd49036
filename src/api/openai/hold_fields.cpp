#include "api/openai/hold_fields.h"

#include <cmath>

namespace lockstep {
namespace {
constexpr double kLeastSeconds = 0.1, kMostSeconds = 600;

void read_hold(const Json& value, const std::string& field, HoldFields* hold) {
  require_object(value, field);
  JsonFields fields;
  fields.integer("every", &hold->order.every, 1, kMostId);
  fields.custom("strings", [hold](const Json& json, const std::string& at) {
    if (!json.is_array() || json.size() > HoldOrder::kMostStrings)
      fail_field(at, fmt::format("is {}, allowed is an array of at most {} strings", describe_json(json), HoldOrder::kMostStrings));
    for (std::size_t i = 0; i < json.size(); ++i) {
      const std::string name = fmt::format("{}[{}]", at, i);
      hold->order.strings.push_back(json_text(json[i], name));
      const std::size_t bytes = hold->order.strings.back().size();
      if (bytes == 0 || bytes > HoldOrder::kLongestString) fail_field(name, fmt::format("has {} bytes, allowed are 1 to {}", bytes, HoldOrder::kLongestString));
    }
  });
  float seconds = 60;
  fields.number("seconds", &seconds, kLeastSeconds, kMostSeconds);
  fields.read(value, field + ".");
  hold->seconds = std::round(static_cast<double>(seconds) * 1000) / 1000;
  if (!hold->order.any()) fail_field(field, "says nothing, allowed are every (tokens), strings, or both");
}
}  // namespace

void add_hold_fields(JsonFields& fields, SamplingFields* s) {
  fields.custom("hold", [s](const Json& value, const std::string& field) { read_hold(value, field, &s->hold); });
  fields.integer("attempt", &s->attempt, 0, SamplingParameters::kMaxAttempt);
}

void check_hold_fields(const SamplingFields& s, std::size_t prompts) {
  if (!s.hold.order.any()) return;
  if (!s.stream) fail_field("hold", "is given without \"stream\": true");
  if (const std::int64_t choices = static_cast<std::int64_t>(prompts) * s.n; choices != 1)
    fail_field("hold", fmt::format("is given with {} choices, allowed is one", choices));
}

}  // namespace lockstep
