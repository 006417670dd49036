#include "model/config_key_log.h"

namespace lockstep {
namespace {
thread_local ConfigKeyLog* current_log = nullptr;
}

ConfigKeyLog::ConfigKeyLog() : outer_(current_log) { current_log = this; }
ConfigKeyLog::~ConfigKeyLog() { current_log = outer_; }
ConfigKeyLog* ConfigKeyLog::of(const Json& config) { return current_log && config.contains("model_type") ? current_log : nullptr; }

void must_equal(const ConfigReader& config, const std::string& key, const Json& value) {
  config.only(key, {value});
  if (ConfigKeyLog* log = ConfigKeyLog::of(config.raw())) {
    log->read(key);
    log->allow(key, {});  // what is allowed is the other key's value, of this config alone
  }
}

}  // namespace lockstep
