// `lockstep deploy` and `lockstep rollback`: the models of a server that runs (docs/deployments.md), over its own HTTP.
#include <cstdio>
#include <numeric>

#include "base/bounded_json.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/gate_file.h"
#include "http/client.h"
#include "serving/traffic.h"

namespace lockstep {
namespace {
using Json = nlohmann::ordered_json;

struct RemoteServer {
  std::string url = "http://127.0.0.1:8080", key;
  bool json = false;
  double seconds = 600;
};

void add_server_rows(OptionTable& table, RemoteServer& server) {
  table.text("url", &server.url, "URL", "The server");
  table.text("api-key", &server.key, "KEY",
             "Its key for administrators (lockstep serve --admin); LOCKSTEP_API_KEY holds one that does not show among the processes");
  table.number("seconds", &server.seconds, 1, 86400, "X", "How long the server may take to answer: it loads the model first");
  add_json_option(table, &server.json);
}

// The server's answer as JSON; an Error with the server's message if it refuses.
Json ask_server(const RemoteServer& server, const char* method, const std::string& path, const Json& body = nullptr) {
  const HttpAddress address = parse_http_address(server.url, "url");
  HttpCall call = call_at(address, method, path, given_key(server.key));
  call.timeout_seconds = server.seconds;
  if (!body.is_null()) call.body = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  const HttpReply reply = http_call(call);
  const Json told = read_json_or_null(reply.body);
  if (reply.status == 200) return told;
  std::string why = "nothing";
  if (told.is_object() && told.contains("error") && told["error"].is_object() && told["error"].contains("message") && told["error"]["message"].is_string())
    why = told["error"]["message"].get<std::string>();
  fail(reply.status >= 500 ? ErrorCode::io : ErrorCode::invalid_argument, "{}:{} answers {}: {}", address.host, address.port, reply.status, why);
}

std::string told_shares(const Json& rule) {
  std::vector<TrafficShare> shares;
  for (const auto& [name, weight] : rule.at("deployments").items()) shares.push_back({name, weight.get<std::int64_t>()});
  return shares_text(shares);
}

// A line for each check of each gate, with its figures, and one where it failed and was overruled.
std::string told_gates(const Json& alias) {
  std::string text;
  for (const Json& gate : alias.value("gates", Json::array())) {
    for (Json check : gate.at("checks")) {
      text +=
          fmt::format("{}: {} {}", gate.at("id").get<std::string>(), check.at("name").get<std::string>(), check.at("passed").get<bool>() ? "passed" : "failed");
      check.erase("name");
      check.erase("passed");
      text += fmt::format(" {}\n", check.dump(-1, ' ', false, Json::error_handler_t::replace));
    }
    if (gate.value("forced", false)) text += fmt::format("{}: failed, and was overruled by --force\n", gate.at("id").get<std::string>());
  }
  return text;
}

// Shares in which `name` has `percent`; the others split the rest in their old proportions.
Json shared_with(const Json& before, const std::string& name, std::int64_t percent) {
  std::int64_t sum = 0;
  for (const auto& [other, weight] : before.items())
    if (other != name) sum += weight.get<std::int64_t>();
  if (percent == 100 || sum == 0) return {{name, 1}};
  Json shares = Json::object();
  std::int64_t divisor = percent * sum;
  for (const auto& [other, weight] : before.items())
    if (other != name) divisor = std::gcd(divisor, weight.get<std::int64_t>() * (100 - percent));
  for (const auto& [other, weight] : before.items())
    if (other != name) shares[other] = weight.get<std::int64_t>() * (100 - percent) / divisor;
  shares[name] = percent * sum / divisor;
  return shares;
}
}  // namespace

int deploy_command(const Arguments& arguments) {
  RemoteServer server;
  std::string source, name, alias, gate_file;
  std::int64_t percent = 100;
  bool force = false;
  OptionTable table("deploy", "Loads one more model into a server that runs, and gives it an alias' traffic, or a part of that.",
                    {"lockstep deploy v8 --name v8 --to chat --percent 5", "lockstep deploy STORE/chat --name v8 --to chat --gate gate.toml"});
  table.positional("SOURCE", &source, true, "A folder, STORE/SNAPSHOT or STORE/CHANNEL below the server's --deploy-folder");
  table.text("name", &name, "NAME", "What the deployment is called").required();
  table.text("to", &alias, "ALIAS", "The name that leads to it then");
  table.integer("percent", &percent, 1, 100, "N", "Its part of the alias' traffic; the others keep theirs of the rest");
  table.refused("without --to", [&] { return alias.empty(); });
  table.input("gate", &gate_file, "FILE", "What it is asked first, and how far it may be below the live version: else the alias stays (docs/deployments.md)");
  table.refused("without --to", [&] { return alias.empty(); });
  table.flag("force", &force, "The alias leads to it although the gate fails, whose report says so");
  table.refused("without --gate", [&] { return gate_file.empty(); });
  add_server_rows(table, server);
  if (!table.parse(arguments)) return kExitOk;

  const Json gate = gate_file.empty() ? Json(nullptr) : gate_of_file(gate_file);
  Json told{{"deployment", ask_server(server, "POST", "/v1/deployments", {{"name", name}, {"source", source}})}, {"alias", nullptr}};
  if (!alias.empty()) {
    Json before = Json::object();
    const Json aliases = ask_server(server, "GET", "/v1/aliases");
    for (const Json& rule : aliases.at("data"))
      if (rule.at("id") == alias) before = rule.at("deployments");
    Json wanted{{"deployments", shared_with(before, name, percent)}, {"gate", gate}};
    if (gate.is_null()) wanted.erase("gate");
    if (force) wanted["force"] = true;
    told["alias"] = ask_server(server, "PUT", "/v1/aliases/" + alias, wanted);
  }
  if (server.json) std::printf("%s\n", told.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  else {
    std::printf("%s is deployed\n", name.c_str());
    if (!gate.is_null()) std::fputs(told_gates(told["alias"]).c_str(), stdout);
    if (!alias.empty()) std::printf("%s: %s\n", alias.c_str(), told_shares(told["alias"]).c_str());
  }
  return kExitOk;
}

int rollback_command(const Arguments& arguments) {
  RemoteServer server;
  std::string alias;
  OptionTable table("rollback", "Gives an alias of a server that runs the deployments that it had before; again, and that is undone.",
                    {"lockstep rollback chat"});
  table.positional("ALIAS", &alias, true, "The alias");
  add_server_rows(table, server);
  if (!table.parse(arguments)) return kExitOk;

  const Json told = ask_server(server, "POST", "/v1/aliases/" + alias + "/rollback");
  if (server.json) std::printf("%s\n", told.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  else std::printf("%s: %s\n", alias.c_str(), told_shares(told).c_str());
  return kExitOk;
}

}  // namespace lockstep
