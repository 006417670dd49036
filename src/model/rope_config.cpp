#include "model/rope_config.h"

#include <algorithm>

#include "base/choice.h"
#include "base/error.h"
#include "numerics/elementary_double.h"

namespace lockstep {

namespace {
// The object that holds the keys, named in errors.
void read_scaling(const ConfigReader& r, RopeSpec& rope, const std::string& type, std::int64_t max_positions) {
  if (type == "default") return;
  constexpr double kLargest = 1e9;
  const double original = r.number("original_max_position_embeddings", 1, kLargest, static_cast<double>(max_positions));
  rope.original_positions = original;
  if (type == "linear") {
    rope.scaling = RopeSpec::Scaling::linear;
    rope.factor = r.number("factor", 1e-3, kLargest);
  } else if (type == "llama3") {
    rope.scaling = RopeSpec::Scaling::llama3;
    rope.factor = r.number("factor", 1e-3, kLargest);
    rope.low_frequency = r.number("low_freq_factor", 1e-3, kLargest);
    rope.high_frequency = r.number("high_freq_factor", 1e-3, kLargest);
    if (rope.high_frequency <= rope.low_frequency)
      fail(ErrorCode::invalid_argument, "config.json: 'high_freq_factor' is {}, allowed is more than 'low_freq_factor', {}", rope.high_frequency,
           rope.low_frequency);
  } else {
    rope.scaling = RopeSpec::Scaling::yarn;
    rope.factor = r.number("factor", 1e-3, kLargest, static_cast<double>(max_positions) / original);
    if (rope.theta <= 1) fail(ErrorCode::invalid_argument, "config.json: 'rope_theta' is {}, allowed with yarn is more than 1", rope.theta);
    rope.beta_fast = r.number("beta_fast", 1e-3, kLargest, 32.0);
    rope.beta_slow = r.number("beta_slow", 1e-3, kLargest, 1.0);
    rope.truncate = r.boolean("truncate", true);
    const auto scale = [&](double m) { return rope.factor <= 1 ? 1.0 : 0.1 * m * log_double(rope.factor) + 1.0; };
    const double m = r.number("mscale", 0, kLargest, 0.0), all = r.number("mscale_all_dim", 0, kLargest, 0.0);
    if (all > 0) rope.softmax_factor = scale(all) * scale(all);
    rope.attention_factor = r.number("attention_factor", 1e-3, kLargest, m > 0 && all > 0 ? scale(m) / scale(all) : scale(1));
  }
}
}  // namespace

namespace {
// Keys that the object may have; others, such as parameters by kind of layer, would ask for other rotations and are refused.
const std::vector<std::string> kKnown = {"rope_type",       "type",
                                         "rope_theta",      "partial_rotary_factor",
                                         "factor",          "original_max_position_embeddings",
                                         "low_freq_factor", "high_freq_factor",
                                         "beta_fast",       "beta_slow",
                                         "truncate",        "mscale",
                                         "mscale_all_dim",  "attention_factor",
                                         "finetuned",       "mrope_interleaved"};
}  // namespace

RopeSpec read_rope(const ConfigReader& config, std::int64_t size, bool half, std::int64_t max_positions, const std::vector<std::string>& allowed,
                   const std::optional<double>& part, double theta) {
  RopeSpec rope;
  rope.rotary = size;
  rope.half = half;
  const bool now = config.has("rope_parameters") && !(config.raw().at("rope_parameters").empty() && config.has("rope_scaling"));
  const char* key = now ? "rope_parameters" : "rope_scaling";
  const Json inner = config.has(key) ? config.raw().at(key) : Json::object();
  return with_context(fmt::format("reading '{}'", key), [&] {
    const ConfigReader r(inner);
    for (const auto& [name, value] : inner.items())
      if (std::find(kKnown.begin(), kKnown.end(), name) == kKnown.end())
        fail(ErrorCode::unsupported, "config.json: '{}' is not known here, {}", name.substr(0, 60), allowed_are(name, kKnown));
    r.only("mrope_interleaved", {false});
    rope.theta = r.has("rope_theta") ? r.number("rope_theta", 1, 1e12) : config.number("rope_theta", 1, 1e12, theta);
    const std::string type = r.text("rope_type", r.text("type", "default"));
    check_choice("config.json: 'rope_type'", type, allowed, ErrorCode::unsupported);
    double turned = part.value_or(1.0);
    for (const ConfigReader* place : {&config, &r}) {  // the inner one rules
      const double factor = place->number("partial_rotary_factor", 0, 1, turned);
      if (!part && factor != 1.0) fail(ErrorCode::unsupported, "config.json: 'partial_rotary_factor' is {}, allowed is 1", factor);
      turned = factor;
    }
    rope.rotary = static_cast<std::int64_t>(static_cast<double>(size) * turned);
    if (rope.rotary < 2 || rope.rotary % 2)
      fail(ErrorCode::invalid_argument,
           "config.json: 'partial_rotary_factor' is {}, and {} of the {} columns of a head turn; allowed are even numbers from 2 on", turned, rope.rotary,
           size);
    read_scaling(r, rope, type, max_positions);
    return rope;
  });
}

}  // namespace lockstep
