// `lockstep bench serve`: what clients of a server see under a load, by class: first tokens, gaps, tokens a second.
#include <cmath>
#include <cstdio>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/signals.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/serve_load.h"

namespace lockstep {
namespace {
using Json = nlohmann::ordered_json;

Json percentiles_json(const std::vector<double>& sorted) {
  const auto milliseconds = [&](double percent) { return std::round(percentile(sorted, percent) * 1e4) / 10; };
  return {{"p50", milliseconds(50)}, {"p90", milliseconds(90)}, {"p95", milliseconds(95)}, {"p99", milliseconds(99)}, {"most", milliseconds(100)}};
}

Json figures_json(const ClassFigures& of) {
  Json refused = Json::object();
  for (const auto& [status, count] : of.refused) refused[status == 0 ? "broken" : std::to_string(status)] = count;
  return {{"answers", of.answers},
          {"tokens", of.tokens},
          {"tokens_per_second", std::round(of.tokens_per_second * 10) / 10},
          {"first_token_ms", percentiles_json(of.first_seconds)},
          {"gap_ms", percentiles_json(of.gap_seconds)},
          {"answer_ms", percentiles_json(of.answer_seconds)},
          {"refused", std::move(refused)}};
}

void print_figures(const ClassFigures& of) {
  std::int64_t refused = 0;
  for (const auto& [status, count] : of.refused) refused += count;
  const auto three = [](const std::vector<double>& sorted) {
    return fmt::format("{:>9.1f}{:>9.1f}{:>9.1f}", percentile(sorted, 50) * 1e3, percentile(sorted, 95) * 1e3, percentile(sorted, 99) * 1e3);
  };
  std::printf("%s\n", fmt::format("{:<10}{:>9}{:>9}{:>11.1f}  {}  {}", of.name, of.answers, refused, of.tokens_per_second, three(of.first_seconds),
                                  three(of.gap_seconds))
                          .c_str());
  if (refused > 0) std::printf("  refused: %s\n", of.refusal.c_str());
}

// The first model that the server tells of.
std::string first_model(const ServeLoad& load) {
  HttpCall call = call_at(load.address, "GET", "/models", load.key);
  call.timeout_seconds = 20;
  const HttpReply reply = http_call(call);
  const Json json = read_json_or_null(reply.body);
  if (reply.status == 200 && json.is_object() && json.contains("data") && json["data"].is_array() && !json["data"].empty() && json["data"][0].is_object() &&
      json["data"][0].contains("id") && json["data"][0]["id"].is_string())
    return json["data"][0]["id"].get<std::string>();
  fail(ErrorCode::io, "{}:{} answers {} and tells of no model; --model names one", load.address.host, load.address.port, reply.status);
}
}  // namespace

int bench_serve_command(const Arguments& arguments) {
  std::string url = "http://127.0.0.1:8080";
  ServeLoad load;
  LoadClass live{.name = "live"}, rollouts{.name = "rollouts", .service_tier = "flex", .tokens = 128};
  double share = 0;
  std::int64_t seed = static_cast<std::int64_t>(load.seed), streams = 32;
  bool classless = false, json = false;
  OptionTable table("bench serve",
                    "Puts a load on a server of OpenAI's API: live answers that come by chance, and rollouts beside them; tells what each class sees.",
                    {"lockstep bench serve --rate 4 --seconds 10", "lockstep bench serve --load 0.3 --rollouts 64 --json"});
  table.text("url", &url, "URL", "The server");
  table.text("api-key", &load.key, "KEY", "Its key; LOCKSTEP_API_KEY holds one that does not show among the processes");
  table.text("model", &load.model, "NAME", "The model (default: the first that the server tells of)");
  table.number("rate", &live.rate, 0, 100000, "X", "Live answers a second, at times drawn as a Poisson process");
  table.number("load", &share, 0, 10, "X", "Instead of --rate: that part of the answers a second that the server gives to --streams at a time, measured first");
  table.integer("streams", &streams, 1, ServeLoad::kMostOpen, "N", "Streams at a time of that measurement");
  table.integer("live-tokens", &live.tokens, 1, 1 << 20, "N", "Tokens of a live answer");
  table.integer("rollouts", &rollouts.at_once, 0, ServeLoad::kMostOpen, "N", "Rollouts at a time, one behind the other (service_tier flex)");
  table.integer("rollout-tokens", &rollouts.tokens, 1, 1 << 20, "N", "Tokens of a rollout");
  table.flag("classless", &classless, "Rollouts do not say that they are rollouts: the control");
  table.integer("prompt-words", &load.prompt_words, 1, 1 << 20, "N", "Numbers in each prompt, which are drawn");
  table.number("warm-seconds", &load.warm_seconds, 0, 3600, "S", "First seconds, which count nowhere");
  table.number("seconds", &load.seconds, 0.1, 86400, "S", "Seconds that are measured");
  table.integer("seed", &seed, 0, std::int64_t{1} << 40, "N", "Of arrivals and prompts");
  add_json_option(table, &json);
  if (!table.parse(arguments)) return kExitOk;
  if (live.rate > 0 && share > 0) throw UsageError("rate and load are both given, allowed is one of the two");
  if (live.rate == 0 && share == 0 && rollouts.at_once == 0) throw UsageError("rate, load and rollouts are all 0: there would be no request");

  install_interrupt_handlers();
  load.address = as_usage([&] { return parse_http_address(url, "url"); });
  if (!load.address.path.ends_with("/v1")) load.address.path += "/v1";
  load.key = given_key(load.key);
  load.seed = static_cast<std::uint64_t>(seed);
  load.stop = interrupt_token();
  if (load.model.empty()) load.model = first_model(load);
  if (classless) rollouts.service_tier.clear();
  Json told{{"model", load.model}, {"seconds", load.seconds}};
  if (share > 0) {
    ServeLoad alone = load;
    alone.classes = {{.name = "capacity", .at_once = streams, .tokens = live.tokens}};
    const double answers = run_serve_load(alone).front().tokens_per_second / static_cast<double>(live.tokens);
    live.rate = share * answers;
    told["capacity_answers_per_second"] = std::round(answers * 100) / 100;
    if (!(live.rate > 0)) fail(ErrorCode::io, "the server gave no token in the seconds that were measured; --seconds makes them more");
  }
  told["rate"] = std::round(live.rate * 1000) / 1000;
  if (live.rate > 0) load.classes.push_back(live);
  if (rollouts.at_once > 0) load.classes.push_back(rollouts);
  const std::vector<ClassFigures> found = run_serve_load(load);
  if (json) {
    told["classes"] = Json::object();
    for (const ClassFigures& one : found) told["classes"][one.name] = figures_json(one);
    std::printf("%s\n", told.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
    return kExitOk;
  }
  std::printf("%s", fmt::format("{}: {} seconds, {} live answers a second\n\n", load.model, load.seconds, told["rate"].dump()).c_str());
  std::printf(
      "%s\n",
      fmt::format("{:<10}{:>9}{:>9}{:>11}  {:>27}  {:>27}", "", "answers", "refused", "tokens/s", "first token ms 50 95 99 %", "gap ms 50 95 99 %").c_str());
  for (const ClassFigures& one : found) print_figures(one);
  return kExitOk;
}

}  // namespace lockstep
