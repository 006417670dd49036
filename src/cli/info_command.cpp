// `lockstep info DIR`: family, sizes, hash of a model.
#include <cstdio>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/shipped.h"
#include "planning/family_list.h"

namespace lockstep {
namespace {
std::string value_text(const nlohmann::ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "none";
  if (value.is_object()) {
    std::string text;
    for (const auto& [name, inner] : value.items()) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value_text(inner));
    return text.empty() ? "none" : text;
  }
  if (value.is_array()) {
    std::string text;
    for (const auto& inner : value) text += (text.empty() ? "" : "; ") + value_text(inner);
    return text.empty() ? "none" : text;
  }
  return value.dump();
}
}  // namespace

int info_command(const Arguments& arguments) {
  std::string folder;
  RuntimeSettings settings;
  bool json = false, of_families = false;
  OptionTable table("info",
                    "Shows what a model holds: family, sizes, how its weights are stored, cache cost, and the SHA-256 of its weights. Reads every tensor.",
                    {"lockstep info models/countdown-glm", "lockstep info models/countdown-glm --json"});
  table.positional("DIR", &folder, false, "Model folder, GGUF file, or the name of a shipped model: countdown-glm, agent-glm");
  table.number("mla-norm-eps", &settings.mla_norm_eps, 0, 1, "X", "Epsilon of MLA's latent norms, 0: the family's default");
  table.flag("families", &of_families,
             "Instead of DIR: what is known of every model family, as JSON: keys of config.json read and refused, cost of the cache, formats of files");
  add_json_option(table, &json);
  if (!table.parse(arguments)) return kExitOk;

  if (of_families) {
    if (!folder.empty()) throw UsageError(fmt::format("--families is there and DIR is '{}', allowed is one of both", folder));
    std::printf("%s\n", families_json().dump().c_str());
    return kExitOk;
  }
  if (folder.empty()) throw UsageError("DIR is missing: a model folder or a GGUF file");

  const auto info = describe_model(shipped("models", folder), settings.mla_norm_eps);
  if (json) {
    std::printf("%s\n", info.dump().c_str());
    return kExitOk;
  }
  for (const auto& [name, value] : info.items()) {
    std::string label = name;
    for (char& c : label)
      if (c == '_') c = ' ';
    std::printf("%-22s%s\n", label.c_str(), value_text(value).c_str());
  }
  return kExitOk;
}

}  // namespace lockstep
