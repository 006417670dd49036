#include "cli/rl_options.h"

#include <algorithm>
#include <memory>

#include "cli/common_options.h"
#include "jobs/rl_work.h"
#include "rl/advantages/advantages.h"
#include "rl/algorithms/algorithms.h"
#include "rl/environment.h"
#include "runs/policy_loss.h"

namespace lockstep {

static void add_critic_options(OptionTable& table, CriticSettings& s) {
  const auto none = [&s] { return !s.there(); };
  const auto number = [&](const char* name, double* value, double low, double high, const char* what, const std::string& help) {
    table.number(name, value, low, high, what, help);
    table.refused("without --critic", none);
  };
  const auto whiten = std::make_shared<std::string>("on"), chain = std::make_shared<std::string>("carry");
  table.choice("critic", &s.kind, critic_names(),
               "A model of values beside the policy, for --advantages gae: none, one of its own weights, or an adapter over frozen ones (docs/rl.md)");
  table.input("critic-model", &s.model, "DIR", "What the critic begins from, as a reward model; unless given the policy's model, with a head of zeros");
  table.refused("without --critic", none);
  table.integer("critic-rank", &s.rank, 1, 256, "R", "Rank of an adapter that is the critic");
  table.refused("without --critic adapter", [&s] { return s.kind != "adapter"; });
  table.integer("critic-warmup", &s.warmup, 0, 1'000'000'000, "N", "First steps, in which the critic learns and the policy stays as it is");
  table.refused("without --critic", none);
  table.integer("critic-epochs", &s.epochs, 1, 1000, "N", "The critic's optimizer steps on each step's rollouts");
  table.refused("without --critic", none);
  number("critic-learning-rate", &s.learning_rate, 0, 1e3, "X", "The critic's learning rate, constant; unless given, an adapter gets ten times the default");
  number("value-clip", &s.clip, 0, 1e6, "X", "How far a value may move within a step, where that makes its loss smaller; 0: any way");
  number("gamma", &s.gae.gamma, 0, 1, "X", "Discount of rewards, a trained token");
  number("lambda", &s.gae.lambda, 0, 1, "X", "How far advantages look ahead: 1 to the end, 0 to the next value");
  table.number("critic-lambda", &s.gae.critic_lambda, 0, 1, "X", "The same of the returns that the critic learns", "--lambda");
  table.refused("without --critic", none);
  number("lambda-length", &s.gae.length_alpha, 0, 1e6, "A", "The policy's lambda is 1 - 1 / (A n) for a rollout of n trained tokens (VAPO); 0: --lambda");
  table.choice(
      "chain-value", chain.get(), {"carry", "terminal"},
      "Of rollouts of several context windows: the last token of a window goes on to the next one's first, or each window ends with the rollout's reward");
  table.refused("without --critic", none);
  table.flag("bootstrap", &s.bootstrap, "A completion without an end token goes on with the critic's value of its end, instead of ending with its reward");
  table.refused("without --critic", none);
  table.choice("whiten", whiten.get(), {"on", "off"}, "Advantages get mean 0 and variance 1 over the batch's trained tokens");
  table.refused("without --critic", none);
  table.after_reading([&table, &s, whiten, chain] {
    s.gae.whiten = *whiten == "on";
    s.gae.carry = *chain == "carry";
    if (s.kind == "adapter" && !table.given("critic-learning-rate")) s.learning_rate = 10 * CriticSettings().learning_rate;
  });
}

void add_window_option(OptionTable& table, std::int64_t* compact_at, const std::string* environment) {
  table.integer("compact-at", compact_at, 0, 1 << 20, "N",
                "Tokens of a context window: before it has more the policy writes a summary, with which the next one begins (docs/rl.md); 0: there is one");
  table.refused("without an environment of many turns", [environment] {
    const std::vector<std::string> names = environment_names();
    const bool unknown = !environment->empty() && std::find(names.begin(), names.end(), *environment) == names.end();  // that is what is wrong then
    return !unknown && !has_many_turns(*environment);
  });
}

void add_chat_option(OptionTable& table, bool* chat) {
  table.flag("chat", chat, "Play each problem as a conversation in the model's chat template: answers before the last are calls of a tool (docs/rl.md)");
}

void add_rl_options(OptionTable& table, RlSettings& s) {
  table.text(
      "environment", &s.environment, "NAME",
      fmt::format("The environment to train in: {}; of recall with a length or two too, and questions, as recall-4096, recall-16..256, recall-64-asked-1..8",
                  fmt::join(environment_names(), ", ")));
  table.integer("steps", &s.steps, 1, 1'000'000'000, "N", "Optimizer steps");
  table.integer("problems", &s.problems, 1, 1 << 20, "N", "Problems per step");
  table.integer("rollouts", &s.rollouts, 1, 1 << 16, "N", "Rollouts per problem: the group; most advantages need at least 2");
  table.integer("max-tokens", &s.max_tokens, 1, 1 << 20, "N",
                "Most tokens of a turn, its end token included; where one does not end the rollout does, without a reward for its end");
  add_window_option(table, &s.compact_at, &s.environment);
  add_chat_option(table, &s.chat);
  table.flag("train-summaries", &s.train_summaries, "Train the summaries that the policy writes, too");
  table.refused("without --compact-at", [&s] { return s.compact_at == 0; });
  table.number("temperature", &s.temperature, 0.001, 100, "X", "Sampling temperature of the rollouts");
  table.integer("top-k", &s.top_k, 0, (std::int64_t{1} << 31) - 1, "N", "Draw rollouts from the N likeliest tokens; 0: from all");
  table.number("top-p", &s.top_p, 0.000001, 1, "X", "Draw rollouts from the likeliest tokens that together have this probability; 1: from all");
  table.number("min-p", &s.min_p, 0, 1, "X", "Draw rollouts from tokens at least this share as likely as the likeliest; 0: from all");
  table.choice("algorithm", &s.algorithm, algorithm_names(),
               "What advantages, loss, clipping, averaging, place of KL, redraws and overlong tokens are, where their own options do not say (docs/rl.md)");
  table.choice("advantages", &s.advantages, all_advantage_names(), "How advantages are computed from rewards; gae: from a critic's values");
  table.choice("loss", &s.loss, policy_loss_names(), "The loss (docs/losses.md)");
  table.texts("loss-config", &s.loss_config, "KEY=VALUE", "An option of the loss");
  table.choice(
      "correction", &s.correction, correction_names(),
      "A factor of each token by the trainer's over the sampler's probability, for rollouts under another profile: truncated, clipped, or 0 outside of bounds "
      "(docs/losses.md)");
  table.number("clip-low", &s.clip_low, 0, 1, "X", "Clip the ratio below 1 - X");
  table.number("clip-high", &s.clip_high, 0, 1e6, "X", "Clip the ratio above 1 + X");
  table.refused("with a --loss that does not clip", [&s] { return !loss_clips(s.loss); }, {"clip-low", "clip-high"});
  table.choice("averaging", &s.averaging, averaging_names(),
               "What the tokens' losses are divided by: all tokens of the update, or each sequence's and their number");
  table.number("kl-coefficient", &s.kl_coefficient, 0, 1e6, "X", "Weight of KL to what training starts from (--model); 0: no reference is kept");
  table.choice("kl", &s.kl, kl_names(), "The estimator of that KL (docs/losses.md); of rewards: k1, k2, k3");
  table.choice("kl-in", &s.kl_in, kl_places(), "Where it enters: the loss, or the tokens' rewards");
  table.refused("without --kl-coefficient", [&s] { return s.kl_coefficient == 0; }, {"kl", "kl-in"});
  add_critic_options(table, s.critic);
  table.refused("without --compact-at", [&s] { return s.compact_at == 0; }, {"chain-value"});
  table.integer("redraws", &s.redraws, 0, 1000, "N",
                "Sample a group whose rewards are all equal again, with a new problem, up to N times, then leave it out; 0: it stays, without a gradient");
  table.integer("overlong-tokens", &s.overlong_tokens, 0, 1 << 20, "N",
                "In the last N of --max-tokens a completion's reward falls, for its advantage; 0: none");
  table.number("overlong-penalty", &s.overlong_penalty, 0, 1e6, "X", "By how much it has fallen at --max-tokens");
  table.refused("without --overlong-tokens", [&s] { return s.overlong_tokens == 0; });
  table.integer("epochs", &s.epochs, 1, 1000, "N", "Times that a step's rollouts are trained on");
  table.integer("mini-batches", &s.mini_batches, 1, 1 << 20, "N", "Optimizer steps an epoch, each on a part of the problems");
  table.number("stop-kl", &s.stop_kl, 0, 1e6, "X", "End a step before a mini-batch whose KL (k3) to the weights that sampled is above X; 0: never");
  table.refused("with 1 epoch of 1 mini-batch", [&s] { return s.epochs * s.mini_batches == 1; });
  table.number("importance-cap", &s.importance_cap, 0, 1e6, "C",
               "Weigh each token by min(trainer's / sampler's probability, C), for rollouts under another profile; costs one more forward per step. 0: off");
  table.choice(
      "share-prompts", &s.share_prompts, share_prompts_names(),
      "What rollouts of one prompt share in training: the prompt's forward (no bit changes), or its backward too (other bits, recorded in checkpoints); auto: "
      "the latter where it saves a quarter of the rows");
  table.integer("share-prompts-from", &s.share_prompts_from, 2, 1 << 20, "N", "Tokens of a prompt from which on --share-prompts auto counts its rows as saved");
  table.refused("without --share-prompts auto", [&s] { return s.share_prompts != "auto"; });
  table.number("learning-rate", &s.learning_rate, 0, 1e3, "X",
               "Peak learning rate; unless given, an adapter gets ten times the default, --optimizer dimuon 0.01");
  table.choice("schedule", &s.schedule, schedule_names(), "Learning rate schedule after the warm-up; linear and cosine end at 0");
  table.integer("warmup", &s.warmup, 0, 1'000'000'000, "N", "Steps of linear warm-up, at most the run's");
  add_adamw_options(table, s, 1e3);
  table.seed("seed", &s.seed, "Seed of problems and sampling");
  table.after_reading([&table, &s] { apply_algorithm(s.algorithm, s, [&](std::string_view option) { return table.given(option); }); });
}

}  // namespace lockstep
