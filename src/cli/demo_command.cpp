// `lockstep demo`: a small model is sampled, trained and served; once with the same numerics profile for rollouts and training, once with two. The
// trained weights are compared with the published hash.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/file.h"
#include "base/folder_lock.h"
#include "base/seconds.h"
#include "base/signals.h"
#include "base/thread_pool.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/demo_report.h"
#include "cli/live_page.h"
#include "cli/shipped.h"
#include "http/client.h"
#include "http/openai_server.h"
#include "rl/environment.h"
#include "trained/led_model.h"

namespace lockstep {
namespace {
using Clock = std::chrono::steady_clock;

template <class... A>
void say(fmt::format_string<A...> format, A&&... args) {
  std::fputs(fmt::format(format, std::forward<A>(args)...).c_str(), stdout);
  std::fflush(stdout);
}

// The problem for the served model at the end: a held-out one, the same in every run, chosen before any training.
constexpr const char* kServedPrompt = "16 19 14=17:";

struct ServedProblem {
  Problem problem;
  std::size_t number = 0;  // among the held-out ones
};
ServedProblem served_problem(const DemoSettings& settings) {
  const std::vector<Problem> problems = held_out_problems(*make_environment(settings.rl.environment), settings.evaluation.seed, settings.evaluation.problems);
  for (std::size_t i = 0; i < problems.size(); ++i)
    if (problems[i].prompt == kServedPrompt) return {problems[i], i};
  fail(ErrorCode::internal, "'{}' is none of the held-out problems", kServedPrompt);
}

struct ServedAnswer {
  std::string text;
  bool right = false;
};

// The exported folder behind a real server, one request over the loopback, the server stopped.
ServedAnswer serve_once(const std::string& folder, const DemoSettings& settings, const Problem& problem) {
  const auto environment = make_environment(settings.rl.environment);
  RuntimeSettings runtime = settings.runtime;
  runtime.model = folder;
  const auto service = std::make_shared<GenerationService>(serving_model(open_model(runtime)), ServingOptions{});
  const auto server = serve_openai(service, {.port = 0});
  const nlohmann::json body{{"model", service->model().name()}, {"prompt", problem.prompt}, {"max_tokens", settings.rl.max_tokens}, {"temperature", 0}};
  say("serving {} on {}\n  POST /v1/completions {}\n", folder, server->url(), body.dump());
  const HttpReply reply = http_call({.method = "POST", .port = server->port(), .path = "/v1/completions", .body = body.dump()});
  server->stop();
  service->stop();
  const nlohmann::json answer = nlohmann::json::parse(reply.body, nullptr, false);
  if (reply.status != 200 || !answer.is_object() || !answer.contains("choices") || answer["choices"].empty())
    fail(ErrorCode::internal, "the server answered {}: {}", reply.status, reply.body.substr(0, 500));
  const std::string text = answer["choices"][0].value("text", "");
  const bool right = environment->begin(problem)->step(text).reward >= 1;
  say("  {} {}{}   ({})\nserver stopped; to serve it again:\n  {} serve --model {}\n\n", reply.status, problem.prompt, text, right ? "right" : "wrong",
      program_name(), folder);
  return {text, right};
}

// Removes arms and results of an earlier demo, which would be mixed with those of this one.
void remove_earlier_demo(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> old = {folder / "result.json", folder / "report.html"};
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if ((name.starts_with("metrics-") || name.starts_with("transcripts-")) && name.ends_with(".jsonl")) old.push_back(entry->path());
  }
  if (error) fail(ErrorCode::io, "cannot list '{}': {}", folder.string(), error.message());
  for (const auto& path : old)
    if (!std::filesystem::remove(path, error) && error) fail(ErrorCode::io, "cannot remove '{}', of an earlier demo: {}", path.string(), error.message());
}

int verdict(const ArmResult& first, const std::optional<Published>& published, const DemoSettings& settings, const std::string& entry) {
  say("weights of '{}' after {} steps: {}\n", first.arm.name, settings.rl.steps, first.weights_sha256);
  if (first.kl.different_bits != 0)
    say("{} log-probabilities of '{}' differ from the sampler's in their bits, in {} steps\n", first.kl.different_bits, first.arm.name, first.unequal_steps);
  if (!published) {
    say("nothing is published: '{}' has no entry '{}' in published.json\n", settings.runtime.model, entry);
    return kExitError;
  }
  const bool same_settings = published->settings == demo_settings_text(settings);
  if (!same_settings) say("the published run had other settings:\n  {}\nthis one has\n  {}\n", published->settings, demo_settings_text(settings));
  const bool identical = same_settings && published->weights_sha256 == first.weights_sha256 && first.kl.different_bits == 0;
  if (!identical) say("published: {}\n", published->weights_sha256);
  say("{}\n", identical ? "identical to the published run" : "DIFFERENT");
  return identical ? kExitOk : kExitError;
}
}  // namespace

int demo_command(const Arguments& arguments) {
  DemoSettings settings;
  settings.runtime.model = "models/countdown-glm";
  std::string runs = "runs", json_file, arm_names;
  bool quick = false;
  ProcessSettings processes;
  LivePage page;
  OptionTable table(
      "demo",
      "Trains a small model on Countdown with reinforcement learning, evaluates and serves it. Two arms with the same data and seeds: one with the same "
      "numerics profile for rollouts and training, one with two. The trained weights are compared with the published hash. Writes runs/demo.",
      {"lockstep demo", "lockstep demo --quick", "lockstep demo --json demo.json --threads 2"});
  table.flag("quick", &quick, "Only the first arm, a few steps");
  table.output_file("json", &json_file, "Also write the results as JSON to this file, beside runs/demo/result.json");
  table.text("arms", &arm_names, "A,A,...", "Which arms (default lockstep,split); split-int4 samples from a 4-bit copy of the weights");
  table.number("importance-cap", &settings.importance_cap, 0, 1e6, "C",
               "In arms with two profiles weigh each token by min(trainer's / sampler's probability, C); 0: off");
  table.refused("where no arm has two profiles", [&] {
    if (arm_names.empty()) return quick;
    const std::vector<DemoArm> arms = demo_arms_of(arm_names);
    return std::none_of(arms.begin(), arms.end(), [](const DemoArm& arm) { return !arm.rollout_profile.empty(); });
  });
  table.model("model", &settings.runtime.model, "The model that is trained");
  add_device_options(table, settings.runtime);
  add_ranks_option(table, &settings.runtime.ranks);
  add_transport_options(table, processes);
  table.integer("micro-batch", &settings.micro_batch, 0, 1 << 20, "N", "Sequences per micro-batch, 0: all; less memory, the same bits");
  add_draft_options(table, settings.drafts, "off", "rollout-speculation", false);
  table.integer("mtp-depths", &settings.mtp.depths, 0, MtpSettings::kMostDepths, "N",
                "Train the layer of --rollout-speculation mtp, or a new one, on line, to say so many tokens ahead; the published weights are the same");
  table.kept_folder("runs", &runs, "Folder of runs");
  page.add_options(table);
  if (!table.parse(arguments)) return kExitOk;
  if (follow_processes(processes, settings.runtime.isa)) return kExitOk;

  const std::vector<DemoArm> arms = demo_arms_of(arm_names);
  install_interrupt_handlers();
  settings.stop = interrupt_token();
  const auto begin = Clock::now();
  if (quick) {
    settings.rl.steps = 5;
    settings.rl.warmup = 5;
    settings.evaluation.problems = 200;
  }
  const std::string entry = quick ? "demo_quick" : "demo";
  settings.folder = std::filesystem::path(runs) / "demo";
  claim_folder(settings.folder, "demo");
  const FolderLock lock(settings.folder);  // one demo at a time, and the page shows that it runs
  const std::optional<Published> published = read_published(settings.runtime.model, entry);
  const std::string exported = (settings.folder / "export").string();

  const RlSettings& rl = settings.rl;
  const auto build = describe_build();
  say("{} learns {} by reinforcement: {} steps of {} problems x {} rollouts\n", settings.runtime.model, rl.environment, rl.steps, rl.problems, rl.rollouts);
  say("  learning rate {} ({}, {} steps of warm-up), {} advantages, clipping {} and {}\n", rl.learning_rate, rl.schedule, rl.warmup, rl.advantages, rl.clip_low,
      rl.clip_high);
  say("  profile {}, {}, {} threads\n\n", settings.runtime.profile,
      settings.runtime.isa == "auto" ? build["instruction_set"].get<std::string>() : settings.runtime.isa,
      settings.runtime.threads > 0 ? settings.runtime.threads : available_processors());

  const ServedProblem served = served_problem(settings);
  say("asked at the end, over HTTP: {} (held-out problem {})\n\n", served.problem.prompt, served.number + 1);

  remove_earlier_demo(settings.folder);
  auto page_server = page.start({.roots = {runs}, .live = "demo"}, "demo", stdout);
  std::vector<ArmResult> results;
  for (const DemoArm& arm : arms) {
    if (quick && arm_names.empty() && !results.empty()) break;
    const auto start = results.empty() ? std::nullopt : std::optional<Evaluation>(results.front().start);
    results.push_back(run_arm(arm, settings, start, results.empty() ? exported : ""));
    const ArmResult& r = results.back();
    say("{}: {}\n  {:.1f} s: sampling {:.1f}, training {:.1f}, evaluation {:.1f}\n", arm.name, arm.summary, r.seconds, r.rollout_seconds, r.train_seconds,
        r.evaluation_seconds);
  }
  const ArmResult& first = results.front();
  say("\n{} held-out problems, {} samples each, 95% intervals over problems; all measured under {}\n\n{}\n", first.start.problems, first.start.samples,
      settings.runtime.profile, demo_table(results));
  const double gain = first.end.pass_at_1.value - first.start.pass_at_1.value;
  if (quick)
    say("a quick run of {} steps is too short to learn: sampled pass@1 moved by {:+.3f}, by chance. What it shows: the KL above, and the hash below;\n"
        "`{} demo` takes {} steps, and learns\n\n",
        rl.steps, gain, program_name(), RlSettings{}.steps);
  else
    say("'{}' gained {:+.3f} in sampled pass@1; the intervals {}\n\n", first.arm.name, gain,
        disjoint(first.start.pass_at_1, first.end.pass_at_1) ? "are disjoint" : "overlap");

  const auto serving = Clock::now();
  const ServedAnswer answer = serve_once(exported, settings, served.problem);
  const double serving_seconds = seconds_since(serving);

  nlohmann::ordered_json json = demo_json(settings, results, published);
  const double seconds = seconds_since(begin);
  json["served"] = {{"prompt", served.problem.prompt},
                    {"before_right", static_cast<bool>(first.start.greedy_right.at(served.number))},
                    {"text", answer.text},
                    {"right", answer.right}};
  json["serving_seconds"] = serving_seconds;
  json["seconds"] = seconds;
  write_file_atomic(settings.folder / "result.json", json.dump(2) + "\n");
  page_server.reset();
  write_report_beside(settings.folder);
  if (!json_file.empty()) write_output_file(json_file, json.dump(2) + "\n", table.overwrite());
  say("{:.0f} seconds in all, {:.1f} of them serving; metrics in {}\n", seconds, serving_seconds, settings.folder.string());
  return verdict(first, published, settings, entry);
}

}  // namespace lockstep
