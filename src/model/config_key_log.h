// Records which keys of config.json a family reads while it is made, and which values it allows for keys that it only checks. Pages and catalogs list
// keys from it, so there is no second list.
//   ConfigKeyLog log; make_model(config); for (const auto& [key, use] : log.keys()) ...
// Keys inside objects of the config (rope_parameters, quantization_config) are not recorded. One log a thread at a time.
#pragma once
#include <map>

#include "model/config_reader.h"

namespace lockstep {

struct ConfigKeyUse {
  bool read = false;          // its value decides something
  std::vector<Json> allowed;  // the only values that are not refused (absent and null never are); empty: there is no such list
};

class ConfigKeyLog {
 public:
  ConfigKeyLog();
  ~ConfigKeyLog();
  ConfigKeyLog(const ConfigKeyLog&) = delete;
  const std::map<std::string, ConfigKeyUse>& keys() const { return keys_; }

  // For readers: the log of this thread, if one is there and `config` is a whole config.json.
  static ConfigKeyLog* of(const Json& config);
  void read(const std::string& key) { keys_[key].read = true; }
  void allow(const std::string& key, const std::vector<Json>& values) { keys_[key].allowed = values; }

 private:
  std::map<std::string, ConfigKeyUse> keys_;
  ConfigKeyLog* outer_;
};

// Refuses any value of `key` but the one that other keys decide ('num_experts' beside 'n_routed_experts'): read, and checked.
void must_equal(const ConfigReader& config, const std::string& key, const Json& value);

}  // namespace lockstep
