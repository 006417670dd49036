// `lockstep eval drafts`: measures how many drafted tokens are right on given prompts, and checks that no bit of an answer depends on them; under
// rejection sampling, where answers are others, how many are taken.
#include <algorithm>
#include <cstdio>

#include "base/signals.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/eval_drafts.h"
#include "jobs/distill_job.h"
#include "rl/environment.h"
#include "serving/draft_evaluation.h"
#include "serving/executor.h"

namespace lockstep {
namespace {
struct DraftsSettings {
  RuntimeSettings runtime;
  std::string data, environment;
  std::int64_t most = 0, max_tokens = 128, at_once = 1;
  double temperature = 1;
  std::uint64_t seed = 1;
  DraftOptions drafts;
  bool json = false;
};

bool parse(const Arguments& arguments, DraftsSettings& s) {
  OptionTable table("eval drafts",
                    "Answers prompts with and without guesses ahead: how many are right by position, and whether any bit differs (exit 1, if coupled).",
                    {"lockstep eval drafts --model DIR --data prompts.jsonl --speculate ngram",
                     "lockstep eval drafts --model DIR --data prompts.jsonl --speculate siblings,ngram --draft-tokens 3 --json"});
  table.input("data", &s.data, "FILE", "JSONL of {\"prompt\"}, as train distill reads it");
  table.text("environment", &s.environment, "NAME", "Instead of --data: held-out problems of an environment, such as countdown; then --n says how many");
  table.integer("n", &s.most, 0, 1 << 20, "N", "Prompts at most, from the first on; 0: all of --data");
  table.integer("max-tokens", &s.max_tokens, 1, 1 << 20, "N", "Most tokens of an answer, its end token included");
  table.number("temperature", &s.temperature, 0, 100, "X", "Sampling temperature");
  table.seed("seed", &s.seed, "Seed of the sampling");
  table.integer("at-once", &s.at_once, 1, 1 << 20, "N", "Prompts in flight at once; changes no bit");
  add_draft_options(table, s.drafts, "mtp");
  add_runtime_options(table, s.runtime);
  add_json_option(table, &s.json);
  table.accept_config();
  if (!table.parse(arguments)) return false;
  if (s.data.empty() == s.environment.empty()) throw UsageError("exactly one of --data and --environment is needed");
  if (s.data.empty() && s.most == 0) throw UsageError("--environment needs --n: its problems have no end");
  return true;
}

std::vector<std::string> prompts_of(const DraftsSettings& s) {
  std::vector<std::string> prompts;
  if (s.data.empty()) {
    const auto environment = make_environment(s.environment);
    for (std::int64_t i = 0; i < s.most; ++i) prompts.push_back(environment->problem(Split::held_out, s.seed, static_cast<std::uint64_t>(i)).prompt);
    return prompts;
  }
  for (PromptLine& line : read_prompt_file(s.data))
    if (s.most == 0 || std::ssize(prompts) < s.most) prompts.push_back(std::move(line.prompt));
  return prompts;
}

std::vector<Request> requests_of(const DraftsSettings& s, const Tokenizer& tokenizer, const std::vector<std::int32_t>& ends) {
  std::vector<Request> requests;
  for (const std::string& prompt : prompts_of(s))
    requests.push_back({.prompt = tokenizer.encode(prompt, true),
                        .sampling = {.temperature = static_cast<float>(s.temperature),
                                     .seed = s.seed,
                                     .max_tokens = static_cast<std::int32_t>(s.max_tokens),
                                     .stop_tokens = ends,
                                     .sample_index = static_cast<std::int32_t>(requests.size())}});
  return requests;
}

nlohmann::ordered_json to_json(const DraftEvaluation& e, const DraftsSettings& s) {
  nlohmann::ordered_json by_position = nlohmann::ordered_json::array();
  for (std::int64_t k = 0; k < s.drafts.tokens; ++k) by_position.push_back(e.accepted_share(static_cast<std::size_t>(k)));
  nlohmann::ordered_json by_source = nlohmann::ordered_json::object();
  for (const DraftKind kind : draft_kinds())
    if (e.drafts.tokens_by(kind) > 0)
      by_source[std::string(draft_name(kind))] = {{"tokens", e.drafts.tokens_by(kind)}, {"accepted", e.drafts.accepted_by(kind)}};
  return {{"prompts", e.prompts},
          {"tokens", e.tokens},
          {"different_bits", e.different},
          {"accepted_length", e.accepted_length()},
          {"accepted_by_position", by_position},
          {"drafts", e.drafts.drafts},
          {"draft_tokens", e.drafts.tokens},
          {"accepted_tokens", e.drafts.accepted},
          {"by_source", by_source},
          {"forwards_without", e.forwards_without},
          {"forwards_with", e.forwards_with},
          {"without_seconds", e.seconds_without},
          {"with_seconds", e.seconds_with}};
}

std::string table_of(const DraftEvaluation& e, const DraftsSettings& s) {
  std::string text = fmt::format("{} prompts, {} tokens, temperature {}\n\n", e.prompts, e.tokens, s.temperature);
  text += fmt::format("{:<22}{:.3f}\n", "accepted length", e.accepted_length());
  for (std::int64_t k = 0; k < s.drafts.tokens; ++k)
    text += fmt::format("{:<22}{:.3f}\n", fmt::format("position {}", k + 1), e.accepted_share(static_cast<std::size_t>(k)));
  text += fmt::format("{:<22}{}, {} tokens of which {} were right\n", "drafts", e.drafts.drafts, e.drafts.tokens, e.drafts.accepted);
  for (const DraftKind kind : draft_kinds())
    if (e.drafts.tokens_by(kind) > 0)
      text += fmt::format("{:<22}{} tokens of which {} were right\n", fmt::format("  of {}", draft_name(kind)), e.drafts.tokens_by(kind),
                          e.drafts.accepted_by(kind));
  text += fmt::format("{:<22}{} without, {} with\n{:<22}{:.2f} without, {:.2f} with\n", "forwards", e.forwards_without, e.forwards_with, "seconds",
                      e.seconds_without, e.seconds_with);
  return text + fmt::format("\n{} of {} tokens differ{}\n", e.different, e.tokens, s.drafts.rejects() ? ", as they may under rejection sampling" : "");
}
}  // namespace

int eval_drafts_command(const Arguments& arguments) {
  DraftsSettings s;
  if (!parse(arguments, s)) return kExitOk;
  if (s.drafts.length == DraftOptions::Length::off)
    throw UsageError("--speculate is 'off', and there is nothing to measure; allowed are auto and names of sources");
  install_interrupt_handlers();
  const OpenedModel opened = open_model(s.runtime);
  if (!opened.tokenizer) fail(ErrorCode::unsupported, "'{}' has no tokenizer.json, and prompts are text", s.runtime.model);
  ServingModel model = serving_model(opened);
  model.executor = std::make_shared<Executor>();  // both use its runtime
  ServingOptions with{.engine = {.drafts = s.drafts}};
  GenerationService plain(model), drafting(model, with);
  const DraftEvaluation e = evaluate_drafts(plain, drafting, requests_of(s, *opened.tokenizer, plain.model().end_tokens()), s.at_once, interrupt_token());
  if (s.json) {
    nlohmann::ordered_json out = to_json(e, s);
    out["model"] = opened.name;
    out["profile"] = plain.model().profile_digest();
    out["speculate"] = s.drafts.length == DraftOptions::Length::automatic ? "auto" : draft_names(s.drafts.sources);
    out["acceptance"] = s.drafts.rejects() ? "rejection" : "coupled";
    out["temperature"] = s.temperature;
    out["seed"] = s.seed;
    std::printf("%s\n", out.dump().c_str());
  } else {
    std::fputs(table_of(e, s).c_str(), stdout);
  }
  return e.different == 0 || s.drafts.rejects() ? kExitOk : kExitError;
}

}  // namespace lockstep
