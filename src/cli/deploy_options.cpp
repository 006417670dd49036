#include "cli/deploy_options.h"

#include <algorithm>

#include "base/error.h"
#include "cli/gate_file.h"
#include "fleet/channel_fleet.h"
#include "serving/plain_name.h"

namespace lockstep {
namespace {
// The two sides of the first '='. UsageError.
std::pair<std::string, std::string> sides(const std::string& option, const std::string& text, const char* allowed) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    throw UsageError(fmt::format("{} is '{}', allowed is {}", option, shown_name(text), allowed));
  return {text.substr(0, equals), text.substr(equals + 1)};
}
}  // namespace

void add_deploy_options(OptionTable& table, DeploySettings& s, const std::function<bool()>& training, const std::function<bool()>& has_keys) {
  const auto without_training = [&] { table.refused("with --training", training); };
  table.inputs("deploy", &s.deploy, "NAME=DIR|STORE/SNAPSHOT",
               "One more model, which requests name as NAME: a folder, or a snapshot or channel of a store. May be repeated; without --model the first one "
               "is the server's own (docs/deployments.md)");
  without_training();
  table.texts(
      "deploy-follow", &s.follow, "NAME",
      "The model of --deploy NAME=STORE/CHANNEL takes each later snapshot of its channel too, beside a second copy of what changes (docs/deployments.md)");
  without_training();
  table.texts("route", &s.route, "ALIAS=NAME:WEIGHT,..",
              "A name that means one model, or several by shares of the traffic: chat=v7:95,v8:5. A user or session stays with one");
  without_training();
  table.inputs("route-gate", &s.gates, "ALIAS=FILE",
               "What a snapshot that comes by a channel has to pass before it is live in a model that the alias of --route leads to (docs/deployments.md)");
  table.refused("without --route", [&s] { return s.route.empty(); });
  table.input("deploy-folder", &s.folder, "DIR", "Models in this folder may be loaded while the server runs (POST /v1/deployments)");
  without_training();
  table.kept_folder("deploy-state", &s.state,
                    "Folder that keeps what is changed over HTTP about models and aliases; a server that is started on it has them again");
  without_training();
  table.number("scale-to-zero-minutes", &s.scale_to_zero_minutes, 0, 60 * 24 * 365, "X",
               "Models of --deploy and POST /v1/deployments that nobody asked for so long leave memory, or sooner where another needs it, and are loaded again "
               "when they are asked; 0: they stay (docs/deployments.md)");
  without_training();
  table.number("cold-start-seconds", &s.cold_start_seconds, 0, 3600, "X",
               "How long a request waits while its model is loaded again; then, and with 0 at once, it is answered with 503 and Retry-After");
  table.refused("without --scale-to-zero-minutes", [&s] { return s.scale_to_zero_minutes == 0; });
  table.texts("admin", &s.administrators, "NAME", "Name of an API key that may change models and aliases while the server runs");
  without_training();
  table.refused("without --api-key-file or LOCKSTEP_API_KEY", [has_keys] { return !has_keys(); });
}

std::vector<DeploySource> deploy_sources(const DeploySettings& s) {
  std::vector<DeploySource> sources;
  for (const std::string& one : s.deploy) {
    auto [name, source] = sides("deploy", one, "NAME=DIR, NAME=STORE/SNAPSHOT or NAME=STORE/CHANNEL");
    as_usage([&] { check_plain_name("the name of a deployment", name); });
    for (const DeploySource& other : sources)
      if (other.name == name) throw UsageError(fmt::format("deploy has the name '{}' twice", name));
    sources.push_back({std::move(name), std::move(source)});
  }
  for (const std::string& name : s.follow) {
    std::vector<std::string> known;
    DeploySource* found = nullptr;
    for (DeploySource& one : sources) {
      known.push_back(one.name);
      if (one.name == name) found = &one;
    }
    if (!found)
      throw UsageError(fmt::format("deploy-follow is '{}', allowed is the name of a --deploy{}", shown_name(name), did_you_mean(shown_name(name), known)));
    as_usage([&] { return parse_channel_place("deploy", found->source); });
    found->follows = true;
  }
  return sources;
}

std::vector<TrafficRule> deploy_routes(const DeploySettings& s) {
  std::vector<TrafficRule> rules;
  for (const std::string& one : s.route) {
    auto [alias, shares] = sides("route", one, "ALIAS=NAME or ALIAS=NAME:WEIGHT,NAME:WEIGHT");
    for (const TrafficRule& other : rules)
      if (other.alias == alias) throw UsageError(fmt::format("route has the alias '{}' twice", alias));
    try {
      rules.push_back({alias, parse_shares(shares), {}});
    } catch (const Error& e) {
      throw UsageError(fmt::format("route is '{}': {}", shown_name(one), e.message()));
    }
  }
  for (const std::string& one : s.gates) {
    const auto [alias, file] = sides("route-gate", one, "ALIAS=FILE");
    const auto rule = std::find_if(rules.begin(), rules.end(), [&alias = alias](const TrafficRule& known) { return known.alias == alias; });
    if (rule == rules.end()) throw UsageError(fmt::format("route-gate is '{}', allowed is the alias of a --route", shown_name(one)));
    if (rule->gate) throw UsageError(fmt::format("route-gate has the alias '{}' twice", alias));
    rule->gate = std::make_shared<const std::string>(gate_of_file(file).dump());
  }
  return rules;
}

}  // namespace lockstep
