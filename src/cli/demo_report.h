// The output of `lockstep demo`: the table, the JSON (existing keys stay, new ones may be added), the published hash. Pure functions.
//   std::fputs(demo_table(results).c_str(), stdout);
#pragma once
#include "jobs/demo_arm.h"

namespace lockstep {

// One column an arm.
std::string demo_table(const std::vector<ArmResult>& results);

// MODEL/published.json: {"demo": {"settings": "...", "weights_sha256": "..."}, "demo_quick": {...}}; what arm 1 must end with.
struct Published {
  std::string settings, weights_sha256;
};
// Empty when there is no file or no such entry. Errors: corrupt_file.
std::optional<Published> read_published(const std::filesystem::path& model, const std::string& entry);
// What the hash depends on besides the model: profile and RlSettings, in one line.
std::string demo_settings_text(const DemoSettings& settings);

nlohmann::ordered_json demo_json(const DemoSettings& settings, const std::vector<ArmResult>& results, const std::optional<Published>& published);

}  // namespace lockstep
