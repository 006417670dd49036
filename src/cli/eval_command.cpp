// `lockstep eval ENVIRONMENT`: the share of held-out problems that a model solves, sampled and greedy.
#include <chrono>
#include <cstdio>

#include "base/seconds.h"
#include "base/signals.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/eval_drafts.h"
#include "cli/rl_options.h"
#include "observe/progress.h"
#include "rl/conversation_environment.h"
#include "rl/evaluation.h"
#include "serving/local_sampler.h"

namespace lockstep {
namespace {
std::string row(const std::string& name, const Interval& i) { return fmt::format("{:<22}{:.4f}   [{:.4f}, {:.4f}]\n", name, i.value, i.low, i.high); }
}  // namespace

int eval_command(const Arguments& arguments) {
  if (!arguments.empty() && arguments[0] == "drafts") return eval_drafts_command({arguments.begin() + 1, arguments.end()});
  RuntimeSettings runtime;
  EvaluationSettings settings;
  std::string name, adapter;
  bool chat = false, json = false;
  OptionTable table("eval",
                    "Solves held-out problems of an environment: several samples each and the greedy answer, with 95% bootstrap intervals over problems.",
                    {"lockstep eval countdown --model models/countdown-glm", "lockstep eval countdown --model models/countdown-glm --n 500 --samples 4 --json",
                     "lockstep eval drafts --model DIR --data prompts.jsonl --speculate ngram"});
  table.positional("ENVIRONMENT", &name, true,
                   fmt::format("The environment: {}; of recall with a length or two too, and questions, as recall-4096, recall-16..256, recall-64-asked-1..8",
                               fmt::join(environment_names(), ", ")));
  table.integer("n", &settings.problems, 1, 1'000'000, "N", "Problems");
  table.integer("samples", &settings.samples, 1, 4096, "N", "Samples per problem");
  table.number("temperature", &settings.temperature, 0, 100, "X", "Sampling temperature of the samples");
  table.integer("max-tokens", &settings.max_tokens, 1, 1 << 20, "N", "Most tokens of an answer, its end token included");
  add_window_option(table, &settings.compact_at, &name);
  add_chat_option(table, &chat);
  table.seed("seed", &settings.seed, "Seed of problems and sampling");
  table.integer("at-once", &settings.at_once, 1, 1 << 20, "N", "Problems in flight at once; changes no bit");
  add_runtime_options(table, runtime);
  table.input("adapter", &adapter, "DIR", "A PEFT adapter over the model");
  add_json_option(table, &json);
  table.accept_config();
  if (!table.parse(arguments)) return kExitOk;

  install_interrupt_handlers();
  check_chat(chat, settings.compact_at);
  const auto environment = chat ? make_conversation_environment(name, runtime.model) : make_environment(name);
  const auto begin = std::chrono::steady_clock::now();
  const OpenedModel opened = open_model(runtime);
  if (!opened.tokenizer) fail(ErrorCode::unsupported, "'{}' has no tokenizer.json, and an environment speaks text", runtime.model);
  ServingOptions serving;
  serving.engine.max_batch_rows = 1024;
  serving.engine.max_sequences = 512;
  const ServingModel model = serving_model(opened);
  const auto service = std::make_shared<GenerationService>(model, serving);
  if (!adapter.empty()) {
    service->weights().set(model.weights, open_adapter(opened, adapter));
  }
  LocalSampler sampler(service, interrupt_token());
  Progress progress({.label = "eval " + name, .total = settings.problems, .unit = "tokens", .quiet = json});
  const Evaluation result = evaluate(*environment, *opened.tokenizer, sampler, settings,
                                     [&](std::int64_t problems, std::int64_t tokens) { progress.advance(problems, static_cast<double>(tokens)); });
  progress.finish();
  const double seconds = seconds_since(begin);
  const EngineCounters counters = service->counters();
  const double skipped = counters.work.skipped_share();

  if (json) {
    nlohmann::ordered_json out = to_json(result);
    out["model"] = opened.name;
    if (!adapter.empty()) out["adapter"] = adapter;
    if (chat) out["chat"] = true;
    out["profile"] = service->model().profile_digest();
    out["seed"] = settings.seed;
    out["pairs_skipped_share"] = skipped;
    out["seconds"] = seconds;
    std::printf("%s\n", out.dump().c_str());
    return kExitOk;
  }
  std::string text = fmt::format("{} problems, {} samples each, temperature {}\n\n", result.problems, result.samples, settings.temperature);
  text += row("sampled pass@1", result.pass_at_1);
  text += row("greedy", result.greedy);
  text += row(fmt::format("pass@{}", result.samples), result.pass_at_k);
  text += row("answers that ended", result.ended);
  if (counters.work.pairs_skipped() > 0) text += fmt::format("\n{:.1f}% of the query-key pairs were skipped", 100 * skipped);
  text += fmt::format("\n{} tokens in {:.1f} s\n", result.tokens, seconds);
  std::fputs(text.c_str(), stdout);
  return kExitOk;
}

}  // namespace lockstep
