#include "rl/environment.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "rl/countdown_environment.h"

namespace lockstep {
namespace {
using Maker = std::unique_ptr<Environment> (*)();
// One row per environment.
constexpr std::array<std::pair<std::string_view, Maker>, 1> kEnvironments = {{{"countdown", &make_countdown_environment}}};
}  // namespace

std::vector<std::string> environment_names() {
  std::vector<std::string> names;
  for (const auto& row : kEnvironments) names.emplace_back(row.first);
  return names;
}

std::unique_ptr<Environment> make_environment(std::string_view name) {
  for (const auto& [known, make] : kEnvironments) {
    if (known == name) return make();
  }
  fail(ErrorCode::invalid_argument, "environment is '{}', allowed is {}{}", name.substr(0, 60), fmt::join(environment_names(), ", "),
       did_you_mean(name, environment_names()));
}

}  // namespace lockstep
