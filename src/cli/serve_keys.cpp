#include "cli/serve_keys.h"

#include <cstdlib>

#include "base/log.h"

namespace lockstep {

bool has_key_in_environment() {
  const char* key = std::getenv("LOCKSTEP_API_KEY");
  return key && *key;
}

ApiKeys read_keys(const std::string& file) {
  ApiKeys keys;
  if (!file.empty()) keys.read_file(file);
  if (has_key_in_environment()) with_context("reading LOCKSTEP_API_KEY", [&] { keys.add("environment", std::getenv("LOCKSTEP_API_KEY")); });
  return keys;
}

void Terms::set_streams(const ApiKeys& keys, GenerationService& service) {
  std::map<std::string, std::int64_t> streams;
  std::map<std::string, WorkClass> classes;
  std::map<std::string, bool> keeping;
  for (const auto& [name, terms] : keys.terms()) {
    classes[name] = terms.work;
    if (terms.streams > 0) streams[name] = terms.streams;
    if (terms.keep_forward) keeping[name] = *terms.keep_forward;
  }
  service.bounds().set_streams(std::move(streams));
  service.callers().set_classes(std::move(classes));
  service.callers().set_keeping(std::move(keeping));
}

void Terms::set(const ApiKeys& keys) const {
  std::map<std::string, double> weights;
  const std::map<std::string, KeyTerms> all = keys.terms();
  for (const auto& [name, terms] : all) weights[name] = terms.weight;
  executor->set_keys(std::move(weights));
  for (const DeploymentLine& line : deployments->list())
    if (line.service) set_streams(keys, *line.service);  // a sleeping model gets them when it is loaded
  rates->set(all);
}

void reload_keys(KeyRing& ring, const std::string& file, const Terms& terms) {
  try {
    ApiKeys keys = read_keys(file);
    const std::size_t count = keys.size();
    terms.set(keys);
    ring.replace(std::move(keys));
    log_info("API keys read again", {{"keys", count}});  // the new keys are valid from here on, and the old ones are not
  } catch (const Error& e) {
    log_error("the API keys could not be read again; those before are still good", {{"reason", e.what()}});
  }
}

}  // namespace lockstep
