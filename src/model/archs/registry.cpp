#include <algorithm>

#include "base/error.h"
#include "model/archs/archs.h"
#include "model/archs/config_keys.h"
#include "model/model.h"

namespace lockstep {

namespace {
struct Family {
  std::string model_type;
  std::unique_ptr<Model> (*make)(const Json&, const ModelOptions&);
};
const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      {"glm_moe_dsa", make_glm_moe_dsa},
      {"llama", make_llama},
      {"qwen3", make_qwen3},
  };
  return all;
}
}  // namespace

bool Model::has_indexer() const {
  const std::vector<Parameter>& all = manifest_.parameters();
  return std::any_of(all.begin(), all.end(), [](const Parameter& p) { return p.indexer; });
}

std::unique_ptr<Model> make_model(const Json& config, const ModelOptions& options) {
  const ConfigReader reader(config);
  const std::string type = reader.text("model_type");
  std::vector<std::string> known;
  for (const Family& family : families()) {
    if (family.model_type == type) {
      refuse_other_arithmetic(reader, type);
      return family.make(config, options);
    }
    known.push_back(family.model_type);
  }
  fail(ErrorCode::unsupported, "config.json: 'model_type' is '{}', known are {}{}", type, fmt::join(known, ", "), did_you_mean(type, known));
}

}  // namespace lockstep
