#include "serving/generation_defaults.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/json_file.h"
#include "engine/request.h"

namespace lockstep {
namespace {
using Json = nlohmann::ordered_json;

[[noreturn]] void refuse(const std::string& name, const Json& value, const char* allowed) {
  fail(ErrorCode::corrupt_file, "generation_config.json: '{}' is {}, allowed is {} (--generation-config none leaves the file out)", name,
       value.dump().substr(0, 100), allowed);
}

// A number from `least` to `most`, or nothing where it is missing or null.
std::optional<float> number_in(const Json& config, const char* name, double least, double most, const char* allowed) {
  const auto found = config.find(name);
  if (found == config.end() || found->is_null()) return std::nullopt;
  if (!found->is_number() || !(found->get<double>() >= least && found->get<double>() <= most)) refuse(name, *found, allowed);
  return found->get<float>();
}

std::int32_t token_of(const Json& value) {
  if (!value.is_number_integer() || value.get<std::int64_t>() < 0 || value.get<std::int64_t>() > INT32_MAX)
    refuse("eos_token_id", value, "a token id, or a list of them");
  return value.get<std::int32_t>();
}
}  // namespace

GenerationDefaults read_generation_defaults(const FolderFiles& files) {
  GenerationDefaults defaults;
  const std::string name = "generation_config.json";
  if (!files.has(name)) return defaults;
  Json config;
  try {
    config = read_json_file(files, name);
  } catch (const Error& e) {
    fail(e.code(), "{} (--generation-config none leaves the file out)", e.message());
  }
  defaults.temperature = number_in(config, "temperature", 0, 100, "a number from 0 to 100");
  if (defaults.temperature && *defaults.temperature != 0 && *defaults.temperature < SamplingParameters::kLeastTemperature)
    refuse("temperature", config["temperature"], "0, or a number from 1e-6 to 100");
  defaults.top_p = number_in(config, "top_p", 1e-9, 1, "a number above 0 and at most 1");
  defaults.min_p = number_in(config, "min_p", 0, 1, "a number from 0 to 1");
  defaults.repetition_penalty = number_in(config, "repetition_penalty", 0.01, 10, "a number from 0.01 to 10");
  defaults.presence_penalty = number_in(config, "presence_penalty", -2, 2, "a number from -2 to 2");
  defaults.frequency_penalty = number_in(config, "frequency_penalty", -2, 2, "a number from -2 to 2");
  if (const auto top_k = config.find("top_k"); top_k != config.end() && !top_k->is_null()) {
    if (!top_k->is_number_integer() || top_k->get<std::int64_t>() < -1 || top_k->get<std::int64_t>() > INT32_MAX)
      refuse("top_k", *top_k, "an integer from -1 (all)");
    defaults.top_k = std::max(0, top_k->get<std::int32_t>());
  }
  if (const auto sample = config.find("do_sample"); sample != config.end() && !sample->is_null()) {
    if (!sample->is_boolean()) refuse("do_sample", *sample, "true or false");
    if (!sample->get<bool>()) defaults.temperature = 0;
  }
  if (const auto ends = config.find("eos_token_id"); ends != config.end() && !ends->is_null()) {
    if (ends->is_array())
      for (const Json& one : *ends) defaults.end_tokens.push_back(token_of(one));
    else defaults.end_tokens.push_back(token_of(*ends));
  }
  return defaults;
}

nlohmann::ordered_json to_json(const GenerationDefaults& d) {
  Json json = Json::object();
  // As they were written: 0.6, not 0.60000002384.
  const auto put = [&](const char* name, const std::optional<float>& value) {
    if (value) json[name] = Json::parse(fmt::format("{}", *value));
  };
  put("temperature", d.temperature);
  put("top_p", d.top_p);
  put("min_p", d.min_p);
  put("repetition_penalty", d.repetition_penalty);
  put("presence_penalty", d.presence_penalty);
  put("frequency_penalty", d.frequency_penalty);
  if (d.top_k) json["top_k"] = *d.top_k;
  if (!d.end_tokens.empty()) json["end_tokens"] = d.end_tokens;
  return json;
}

}  // namespace lockstep
