// Tests every option of every command: one whose mechanism is off is refused with one sentence, and each of the others always has an
// effect. A new option must be added to one of the two lists, or this fails.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "cli/commands.h"
#include "cli/options.h"

namespace lockstep {
namespace {

using Words = std::vector<std::string>;
Words words_of(const std::string& text) {
  std::istringstream stream(text);
  Words words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

int run_words(const std::string& command, const std::string& more) {
  const Words all = words_of(command + " " + more);
  for (const Command& one : commands())
    if (one.name == all.front()) return one.run({all.begin() + 1, all.end()});
  throw Error(ErrorCode::not_found, "no command " + all.front());
}

// An option that does nothing where it is given with `with` (all that the command needs, and what switches the mechanism off).
struct Idle {
  const char *command, *with, *option, *value, *where;
};
constexpr const char kSft[] = "--model x --environment countdown", kSftAdapter[] = "--model x --environment countdown --adapter-rank 4";
constexpr const char kServe[] = "--model x";
// A model without experts, router and indexer, and one with all of them.
constexpr const char kDense[] = "--model " LOCKSTEP_SOURCE_DIR "/tests/golden/llama/tiny.json --environment countdown";
constexpr const char kSparse[] = "--model " LOCKSTEP_SOURCE_DIR "/models/countdown-glm --environment countdown";
const std::vector<Idle>& idle_options() {
  static const std::vector<Idle> all = [] {
    std::vector<Idle> rows{
        {"serve", kServe, "frozen-layers", "experts", "without --frozen-base"},
        {"serve", kServe, "max-adapters", "2", "without --adapter or --adapter-folder"},
        {"serve", "--model x --speculate off", "draft-tokens", "2", "with --speculate off"},
        {"eval drafts", "--model x --data d --speculate off", "draft-tokens", "2", "with --speculate off"},
        {"generate", "--model x --prompt a --speculate off", "draft-tokens", "2", "with --speculate off"},
        {"chat", "--model x --speculate off", "draft-tokens", "2", "with --speculate off"},
        {"train rl", "--model x", "draft-tokens", "2", "with --rollout-speculation off"},
        {"serve", "--model x --speculate off", "acceptance", "rejection", "with --speculate off"},
        {"generate", "--model x --prompt a --speculate off", "acceptance", "rejection", "with --speculate off"},
        {"eval drafts", "--model x --data d --speculate off", "acceptance", "rejection", "with --speculate off"},
        {"chat", "--model x --speculate off", "acceptance", "rejection", "with --speculate off"},
        {"train rl", "--model x", "acceptance", "rejection", "with --rollout-speculation off"},
        {"train rl", "--model x", "keep-forward-megabytes", "2", "with --keep-forward off"},
        {"train rl", "--model x", "verify-kept", "2", "with --keep-forward off"},
        {"serve", "--model x --training", "keep-forward-megabytes", "2", "with --keep-forward off"},
        {"serve", "--model x --training", "verify-kept", "2", "with --keep-forward off"},
        {"demo", "--quick", "draft-tokens", "2", "with --rollout-speculation off"},
        {"index-share convert", "m o --pattern FS", "steps", "2", "without --data"},
        {"index-share convert", "m o --pattern FS", "batch", "2", "without --data"},
        {"index-share convert", "m o --pattern FS", "learning-rate", "0.5", "without --data"},
        {"index-share convert", "m o --pattern FS", "dense-steps", "2", "without --data"},
        {"index-share convert", "m o --pattern FS", "seed", "2", "without --data"},
        {"index-share convert", "m o --pattern FS", "threads", "2", "without --data"},
        {"index-share convert", "m o --pattern FS", "quiet", "", "without --data"},
        {"serve", kServe, "swap-memory", "single", "without --follow"},
        {"serve", kServe, "in-flight", "finish", "without --follow"},
        {"serve", kServe, "replica", "a", "without --follow"},
        {"serve", kServe, "downloads", "x", "without --follow"},
        {"serve", kServe, "hot-load-folder", "x", "without --follow"},
        {"serve", kServe, "quorum", "2", "without --follow or --publish"},
        {"serve", kServe, "publish", "x/y", "without --training"},
        {"serve", "--model x --training", "deploy", "a=x", "with --training"},
        {"serve", "--model x --training", "deploy-follow", "a", "with --training"},
        {"serve", "--model x --training", "route", "a=x", "with --training"},
        {"serve", kServe, "route-gate", "a=x", "without --route"},
        {"serve", "--model x --training", "deploy-folder", "x", "with --training"},
        {"serve", "--model x --training", "deploy-state", "x", "with --training"},
        {"serve", "--model x --training", "scale-to-zero-minutes", "5", "with --training"},
        {"serve", kServe, "cold-start-seconds", "5", "without --scale-to-zero-minutes"},
        {"serve", "--model x --training", "admin", "ann", "with --training"},
        {"serve", kServe, "admin", "ann", "without --api-key-file or LOCKSTEP_API_KEY"},
        {"serve", kServe, "publish-transition", "staged", "without --publish"},
        {"train rl", "--model x", "publish-transition", "staged", "without --publish"},
        {"doctor", "--quick", "threads", "2", "with --quick"},
        {"doctor", "", "transport", "threads", "without --ranks"},
        {"doctor", "", "isa", "avx2", "without --ranks"},
        {"doctor", "", "model", "x", "without --ranks"},
        {"doctor", "--ranks tp=2", "rank-timeout", "8", "without --transport mpi"},
        {"plan", "--model x", "batch-rows", "9", "without --for serve"},
        {"plan", "--model x", "cache-bytes", "9", "without --for serve"},
        {"plan", "--model x --for serve", "micro-batch", "1", "with --for serve"},
        {"plan", "--model x --for serve", "checkpoint-activations", "", "with --for serve"},
        {"plan", "--model x --for serve", "train-indexer", "", "with --for serve"},
        {"plan", "--model x --critic full", "train-indexer", "", "with --critic, which `train rl` has, where no indexer learns"},
        {"plan", "--model " LOCKSTEP_SOURCE_DIR "/tests/golden/llama/tiny.json", "train-indexer", "", "where the model has no indexer"},
        {"plan", "--model x --for serve", "optimizer-state", "file", "with --for serve"},
        {"plan", "--model x --for serve", "critic", "full", "with --for serve"},
        {"plan", "--model x --critic full", "critic-rank", "4", "without --critic adapter"},
        {"plan", "--model x --for serve", "rollouts", "8", "with --for serve"},
        {"plan", "--model x --ranks dp=2", "rollouts", "8", "over several --ranks"},
        {"plan", "--model x --flops", "rollouts", "8", "with --flops"},
        {"plan", "--model x --for serve", "mtp-depths", "1", "with --for serve"},
        {"plan", "--model x --teacher y", "mtp-depths", "1", "with --teacher"},
        {"plan", "--model x --flops", "mtp-depths", "1", "with --flops"},
        {"plan", "--model x --for serve", "teacher", "y", "with --for serve"},
        {"plan", "--model x --critic full", "teacher", "y", "with --critic"},
        {"plan", "--model x --for serve", "keep-forward", "all", "with --for serve"},
        {"plan", "--model x --ranks tp=2", "keep-forward", "all", "with a layout of --ranks over which nothing is kept"},
        {"plan", "--model x --ranks dp=65", "keep-forward", "inputs", "with a layout of --ranks over which nothing is kept"},
        {"plan", "--model x", "keep-forward-megabytes", "9", "with --keep-forward off"},
        {"plan", "--model x --flops", "keep-forward", "all", "with --flops"},
        {"plan", "--model x --flops", "for", "serve", "with --flops"},
        {"plan", "--model x --flops", "sequences", "9", "with --flops"},
        {"plan", "--model x --flops", "length", "9", "with --flops"},
        {"plan", "--model x --flops", "micro-batch", "9", "with --flops"},
        {"plan", "--model x --flops", "checkpoint-activations", "", "with --flops"},
        {"plan", "--model x --flops", "train-indexer", "", "with --flops"},
        {"plan", "--model x --flops", "optimizer-state", "file", "with --flops"},
        {"plan", "--model x --flops", "critic", "full", "with --flops"},
        {"plan", "--model x --flops", "teacher", "y", "with --flops"},
        {"plan", "--model x --flops", "memory-megabytes", "9", "with --flops"},
        {"plan", "--model x --flops", "threads", "2", "with --flops"},
        {"plan", "--model x --flops", "device", "cuda", "with --flops"},
        {"plan", "--model x --flops", "backend", "traced", "with --flops"},
        {"plan", "--model x --flops", "isa", "avx2", "with --flops"},
        {"plan", "--model x --flops", "mla-norm-eps", "0.1", "with --flops"},
        {"plan", "--model x --flops", "ranks", "tp=2", "with --flops"},
        {"simulate", "m --ranks tp=2", "devices", "4", "without --ranks all"},
        {"simulate", "m --ranks tp=2", "network-gigabits", "1", "without --host-devices"},
        {"launch", "--hosts a --ranks tp=2", "device", "h200", "without --ranks auto"},
        {"launch", "--hosts a --ranks tp=2", "length", "64", "without --ranks auto"},
        {"launch", "--hosts a --ranks tp=2", "network-gigabits", "1", "without --ranks auto"},
        {"train sft", kSft, "init-seed", "2", "without --from-scratch, --adapter-rank or --mtp-depths"},
        {"train sft", kSft, "adapter-alpha", "8", "without --adapter-rank"},
        {"train sft", kSft, "rank-timeout", "8", "without --transport mpi"},
        {"train rl", "--model x", "rank-timeout", "8", "without --transport mpi"},
        {"score", "--model x --tokens t", "rank-timeout", "8", "without --transport mpi"},
        {"train preference", "--model x --data y", "rank-timeout", "8", "without --transport mpi"},
        {"train distill", "--model x --teachers y --data z", "rank-timeout", "8", "without --transport mpi"},
        {"serve", kServe, "rank-timeout", "8", "without --transport mpi"},
        {"demo", "--quick", "rank-timeout", "8", "without --transport mpi"},
        {"parity", "--model x", "rank-timeout", "8", "without --transport mpi"},
        {"train rl", "--model x", "adapter-alpha", "8", "without --adapter-rank"},
        {"train rl", "--model x", "init-seed", "8", "without --adapter-rank or --mtp-depths"},
        {"train rl", "--model x", "kl", "k1", "without --kl-coefficient"},
        {"train rl", "--model x", "kl-in", "reward", "without --kl-coefficient"},
        {"train rl", "--model x --share-prompts forward", "share-prompts-from", "8", "without --share-prompts auto"},
        {"train sft", "--model x --environment countdown --share-prompts off", "share-prompts-from", "8", "without --share-prompts auto"},
        {"train rl", "--model x", "compact-at", "72", "without an environment of many turns"},
        {"train sft", kSft, "compact-at", "72", "without an environment of many turns"},
        {"train sft", "--model x --data y", "chat-share", "0.5", "without --environment"},
        {"train sft", "--model x --data y", "hold-rate", "0.5", "without --environment"},
        {"eval", "countdown --model x", "compact-at", "72", "without an environment of many turns"},
        {"train rl", "--model x", "train-summaries", "", "without --compact-at"},
        {"train rl", "--model x --algorithm ppo", "chain-value", "terminal", "without --compact-at"},
        {"train rl", "--model x --adapter-rank 4", "export-dtype", "f32", "with --adapter-rank, which exports fp32"},
        {"train sft", kSftAdapter, "export-dtype", "f32", "with --adapter-rank, which exports fp32"},
        {"train rl", "--model x --profile cpu-mxfp8", "export-dtype", "bf16", "with a --profile whose weights train in few bits, which exports fp32"},
        {"train rl", "--model x --profile cpu-int4-qat", "export-dtype", "bf16", "with a --profile whose weights train in few bits, which exports fp32"},
        {"train sft", "--model x --environment countdown --profile cpu-int4-qat", "export-dtype", "bf16",
         "with a --profile whose weights train in few bits, which exports fp32"},
        {"render", "--model x", "end-token", "x", "without --train"},
        {"train sft", kSft, "init-deviation", "1", "without --from-scratch or --mtp-depths"},
        {"train sft", kSft, "mtp-loss", "tv", "without --mtp-depths"},
        {"train sft", kSft, "mtp-keys", "own", "without --mtp-depths"},
        {"train sft", kSft, "mtp-state", "unnormed", "without --mtp-depths"},
        {"train sft", kSft, "mtp-joint", "", "without --mtp-depths"},
        {"train rl", "--model x", "mtp-loss", "tv", "without --mtp-depths"},
        {"train rl", "--model x", "mtp-keys", "own", "without --mtp-depths"},
        {"train rl", "--model x", "mtp-state", "unnormed", "without --mtp-depths"},
        {"train rl", "--model x", "mtp-learning-rate", "1", "without --mtp-depths"},
        {"train rl", "--model x", "mtp-max-norm", "2", "without --mtp-depths"},
        {"train rl", "--model x", "mtp-router-bias-rate", "0.5", "without --mtp-depths"},
        {"train sft", kSft, "mtp-learning-rate", "1", "without --mtp-depths"},
        {"train sft", kSft, "mtp-max-norm", "2", "without --mtp-depths"},
        {"train sft", kSft, "mtp-router-bias-rate", "0.5", "without --mtp-depths"},
        {"train sft", "--model x --environment countdown --schedule constant", "final-fraction", "0.5", "with --schedule constant"},
        {"train sft", "--model x --environment countdown --no-train-indexer", "index-from", "5", "with --no-train-indexer"},
        {"train sft", kDense, "router-bias-rate", "0.5", "where the model has no router with a correction bias"},
        {"train sft", kDense, "train-indexer", "", "where the model has no indexer"},
        {"train sft", kDense, "index-from", "5", "where the model has no indexer"},
        {"train sft", kDense, "sparse-from", "5", "where the model has no indexer"},
        {"demo", "--quick", "importance-cap", "2", "where no arm has two profiles"},
        {"demo", "--arms lockstep", "importance-cap", "2", "where no arm has two profiles"},
        {"snapshot push", "x y", "transition", "staged", "without --channel"},
        {"deploy", "x --name a", "percent", "5", "without --to"},
        {"deploy", "x --name a", "gate", "x", "without --to"},
        {"deploy", "x --name a --to b", "force", "", "without --gate"},
        {"snapshot show", "x", "tensors", "", "without SNAPSHOT"},
        {"snapshot mirror", "x y --channel c", "poll-seconds", "3", "without --follow"},
        {"tokenize", "--model x --ids 1", "add-special", "", "with --ids"},
        {"tokenize", "--model x --ids 1", "parse-special", "", "with --ids"},
        {"tokenize", "--model x --text a", "skip-special", "", "without --ids or --jsonl"},
        {"tokenize", "--model x --jsonl", "json", "", "with --jsonl"},
    };
    for (const auto& [option, value] : {std::pair("state", "x"),
                                        std::pair("token-seconds", "5"),
                                        std::pair("alias", "a"),
                                        std::pair("shapes", "f"),
                                        std::pair("max-models", "2"),
                                        std::pair("metadata-kilobytes", "2"),
                                        std::pair("checkpoint-megabytes", "2"),
                                        std::pair("session-days", "1"),
                                        std::pair("session-idle-minutes", "1"),
                                        std::pair("gradient-megabytes", "1"),
                                        std::pair("gap-seconds", "5"),
                                        std::pair("sampler-hours", "1"),
                                        std::pair("sampler-megabytes", "1"),
                                        std::pair("offload-optimizer", ""),
                                        std::pair("separate-passes", ""),
                                        std::pair("reuse-megabytes", "1"),
                                        std::pair("custom-loss", "client"),
                                        std::pair("keep-forward", "all"),
                                        std::pair("keep-forward-megabytes", "1"),
                                        std::pair("verify-kept", "2"),
                                        std::pair("shares", "live=50,rollouts=30,training=20")})
      rows.push_back({"serve", kServe, option, value, "without --training"});
    for (const auto& [option, value] :
         {std::pair("generation-config", "none"), std::pair("speculate", "off"), std::pair("draft-tokens", "2"), std::pair("acceptance", "coupled"),
          std::pair("profile", "cpu-f32"), std::pair("threads", "2"), std::pair("device", "cpu"), std::pair("backend", "deferred"), std::pair("isa", "avx2"),
          std::pair("mla-norm-eps", "1"), std::pair("context", "5")})
      rows.push_back({"chat", "--url http://localhost:1", option, value, "with --url"});
    for (const auto& [option, value] :
         {std::pair("model", "x"), std::pair("fuzz", "2"), std::pair("seed", "2"), std::pair("profile", "cpu-f32"), std::pair("ranks", "tp=2"),
          std::pair("transport", "threads"), std::pair("device", "cpu"), std::pair("mla-norm-eps", "0.5")})
      rows.push_back({"parity", "--case f", option, value, "with --case, whose file says it"});
    for (const auto& [option, value] : {std::pair("messages", "f"), std::pair("tools", "f"), std::pair("generation-prompt", ""), std::pair("continue", ""),
                                        std::pair("set", "a=1"), std::pair("json", ""), std::pair("train", "f")})
      rows.push_back({"render", "--jsonl", option, value, "with --jsonl, whose lines say it"});
    for (const auto& [option, value] :
         {std::pair("router-bias-rate", "0.5"), std::pair("train-indexer", ""), std::pair("index-from", "5"), std::pair("sparse-from", "5")})
      rows.push_back({"train sft", kSftAdapter, option, value, "with --adapter-rank, whose base is frozen"});
    for (const char* option : {"beta2", "eps", "weight-decay"})
      for (const auto& [command, with] :
           {std::pair("train sft", "--model x --environment countdown --optimizer dimuon"), std::pair("train rl", "--model x --optimizer dimuon")})
        rows.push_back({command, with, option, "0.5", "with --optimizer dimuon, whose AdamW has fixed ones"});
    for (const char* option : {"transcripts-every", "transcript-megabytes"}) {
      rows.push_back({"train sft", "--model x --environment countdown --transcripts 0", option, "2", "with --transcripts 0"});
      rows.push_back({"train rl", "--model x --transcripts 0", option, "2", "with --transcripts 0"});
    }
    rows.push_back({"train sft", "--model x --environment countdown --no-page", "page-port", "5", "with --no-page"});
    rows.push_back({"train rl", "--model x --no-page", "page-port", "5", "with --no-page"});
    rows.push_back({"train rl", "--model x --loss reinforce", "clip-low", "0.1", "with a --loss that does not clip"});
    rows.push_back({"train rl", "--model x --algorithm rloo", "clip-high", "0.1", "with a --loss that does not clip"});
    for (const auto& [option, value] :
         {std::pair("critic-model", "d"), std::pair("critic-warmup", "2"), std::pair("critic-epochs", "2"), std::pair("critic-learning-rate", "0.1"),
          std::pair("value-clip", "0.1"), std::pair("gamma", "0.5"), std::pair("lambda", "0.5"), std::pair("critic-lambda", "0.5"),
          std::pair("lambda-length", "2"), std::pair("chain-value", "terminal"), std::pair("bootstrap", ""), std::pair("whiten", "off")})
      rows.push_back({"train rl", "--model x", option, value, "without --critic"});
    rows.push_back({"train rl", "--model x --algorithm ppo", "critic-rank", "4", "without --critic adapter"});
    rows.push_back({"train rl", "--model x", "overlong-penalty", "2", "without --overlong-tokens"});
    rows.push_back({"train rl", "--model x", "stop-kl", "0.1", "with 1 epoch of 1 mini-batch"});
    rows.push_back({"train rl", "--model x --allow-profile-mix", "on-difference", "report", "with --allow-profile-mix, which always reports"});
    for (const char* option : {"beta2", "eps", "weight-decay"})
      rows.push_back({"train preference", "--model x --data d --optimizer dimuon", option, "0.5", "with --optimizer dimuon, whose AdamW has fixed ones"});
    for (const auto& [option, with] :
         {std::pair("label-smoothing", "--model x --data d --loss dpo"), std::pair("gamma", "--model x --data d --loss cpo"),
          std::pair("alpha", "--model x --data d --loss simpo"), std::pair("desirable-weight", "--model x --data d --loss ipo"),
          std::pair("undesirable-weight", "--model x --data d --loss orpo"), std::pair("beta", "--model x --data d --loss reward")})
      rows.push_back({"train preference", with, option, "0.2", "with a --loss without it"});
    rows.push_back({"train preference", "--model x --data d", "final-fraction", "0.5", "with --schedule constant"});
    rows.push_back({"train preference", "--model x --data d", "adapter-alpha", "8", "without --adapter-rank"});
    rows.push_back({"train preference", "--model x --data d", "init-seed", "8", "without --adapter-rank"});
    rows.push_back({"train preference", "--model x --data d --adapter-rank 4", "export-dtype", "f32", "with --adapter-rank, which exports fp32"});
    for (const auto& [command, with] : {std::pair("train preference", "--model x --data d --profile cpu-int4-qat"),
                                        std::pair("train distill", "--model x --teachers t --data d --profile cpu-int4-qat")})
      rows.push_back({command, with, "export-dtype", "bf16", "with a --profile whose weights train in few bits, which exports fp32"});
    rows.push_back({"train preference", "--model x --data d --no-page", "page-port", "5", "with --no-page"});
    const char* distill = "--model x --teachers t --data d";
    for (const char* option : {"beta2", "eps", "weight-decay"})
      rows.push_back(
          {"train distill", "--model x --teachers t --data d --optimizer dimuon", option, "0.5", "with --optimizer dimuon, whose AdamW has fixed ones"});
    rows.push_back(
        {"train distill", "--model x --teachers t --data d --over sampled", "divergence", "reverse", "with --over sampled, which is the reverse one"});
    rows.push_back({"train distill", distill, "teacher-top-k", "3", "without --over top"});
    rows.push_back({"train distill", distill, "adapter-alpha", "8", "without --adapter-rank"});
    rows.push_back({"train distill", distill, "init-seed", "8", "without --adapter-rank"});
    rows.push_back({"train distill", "--model x --teachers t --data d --adapter-rank 4", "export-dtype", "f32", "with --adapter-rank, which exports fp32"});
    rows.push_back({"train distill", "--model x --teachers t --data d --no-page", "page-port", "5", "with --no-page"});
    rows.push_back({"demo", "--no-page", "page-port", "5", "with --no-page"});
    for (const auto& [command, with] : {std::pair("bench prefill", "--model x"), std::pair("bench decode", "--model x"), std::pair("bench train", "--model x"),
                                        std::pair("bench rl", "--model x"), std::pair("bench counters", "--model x"), std::pair("bench prefix", "--model x"),
                                        std::pair("train sft", kSft), std::pair("train rl", "--model x"), std::pair("train preference", "--model x --data d"),
                                        std::pair("train distill", distill), std::pair("serve", kServe)})
      rows.push_back({command, with, "roofline", "f", "without --profile-operations"});
    rows.push_back({"bench decode", "--model x", "profile-prompts", "", "without --profile-operations"});
    return rows;
  }();
  return all;
}

// Options that always have an effect, or whose misuse the command refuses in a sentence of its own.
const std::map<std::string, std::string>& effective_options() {
  static const std::map<std::string, std::string> all = {
      {"demo",
       "quick overwrite json arms model profile threads device backend isa mla-norm-eps context ranks transport micro-batch rollout-speculation mtp-depths "
       "runs page"},
      {"chat", "model url api-key system temperature top-p top-k min-p repetition-penalty max-tokens seed chat-template"},
      {"generate",
       "prompt tokens max-tokens temperature top-p top-k generation-config seed schema json-object speculate stop model profile threads device backend isa "
       "mla-norm-eps "
       "context ranks json"},
      {"train sft",
       "mtp-depths model profile threads device backend isa mla-norm-eps context ranks transport name fork overwrite runs data eval eval-share eval-every "
       "patience epochs "
       "adapter-rank optimizer chat-template end-token environment from-scratch seed steps batch share-prompts micro-batch checkpoint-activations "
       "optimizer-state "
       "learning-rate "
       "schedule warmup beta1 max-norm checkpoint-every keep-last transcripts export-to quiet resume page json profile-operations trace"},
      {"train rl",
       "mtp-depths name fork runs model profile threads device backend isa mla-norm-eps context ranks transport environment steps problems rollouts max-tokens "
       "temperature "
       "top-k top-p min-p "
       "chat algorithm advantages critic loss loss-config correction averaging kl-coefficient redraws overlong-tokens epochs mini-batches "
       "importance-cap share-prompts adapter-rank optimizer learning-rate schedule warmup beta1 max-norm seed rollout-profile rollout-speculation "
       "allow-profile-mix micro-batch checkpoint-activations optimizer-state keep-forward checkpoint-every keep-last transcripts publish quiet resume page "
       "json "
       "profile-operations trace overwrite"},
      {"train preference",
       "model profile threads device backend isa mla-norm-eps context ranks transport name runs fork data loss end-token chat-template seed epochs steps batch "
       "share-prompts eval "
       "eval-share "
       "eval-every micro-batch checkpoint-activations optimizer-state learning-rate schedule warmup beta1 max-norm adapter-rank "
       "optimizer "
       "checkpoint-every keep-last export-to overwrite quiet resume page json profile-operations trace"},
      {"train distill",
       "name runs fork model profile threads device backend isa mla-norm-eps context ranks transport teachers teacher-megabytes data environment steps prompts "
       "rollouts "
       "max-tokens "
       "temperature over learning-rate schedule warmup beta1 max-norm adapter-rank optimizer seed micro-batch checkpoint-activations optimizer-state "
       "checkpoint-every keep-last quiet resume page json profile-operations trace overwrite"},
      {"eval drafts", "data environment n max-tokens temperature seed at-once speculate model profile threads device backend isa mla-norm-eps context json"},
      {"eval", "adapter n samples temperature max-tokens chat seed at-once model profile threads device backend isa mla-norm-eps context json"},
      {"serve",
       "model profile threads device backend isa mla-norm-eps context ranks transport host port name chat-template message-format tool-format "
       "generation-config training "
       "frozen-base adapter adapter-folder runs store max-open cache-megabytes memory-megabytes api-key-file insecure tls-certificate tls-key cors-origin "
       "allow-host "
       "max-connections max-body-kilobytes body-megabytes key-share max-held-bytes max-pending-bytes idle-seconds body-seconds write-seconds access-log "
       "log-format drain-seconds stop-seconds share-prefixes speculate follow live-token-ms profile-operations trace overwrite"},
      {"render", "model template ids jsonl"},
      {"watch", "run parity port"},
      {"report", "out overwrite"},
      {"info", "families mla-norm-eps json"},
      {"convert", "dtype profile overwrite"},
      {"score", "tokens via adapter model profile threads device backend isa mla-norm-eps context ranks transport json"},
      {"grad", "tokens out overwrite loss loss-config rows model profile threads device backend isa mla-norm-eps context ranks json"},
      {"index-share overlap", "data model profile threads device backend isa mla-norm-eps context json"},
      {"index-share convert", "pattern dtype data overwrite"},
      {"index-share search", "data indexers exhaustive model profile threads device backend isa mla-norm-eps context quiet json"},
      {"tokenize", "model text ids jsonl"},
      {"parity", "case json"},
      {"bench gemm", "shape rows weights threads isa leaves order cold-megabytes seconds json"},
      {"bench attention", "context heads kv-heads size cache threads isa seconds json"},
      {"bench memory", "threads json"},
      {"bench arithmetic", "threads isa seconds json"},
      {"bench roofline", "threads isa seconds out overwrite json"},
      {"bench context", "tokens window training seconds model profile threads device backend isa mla-norm-eps context json"},
      {"bench serve", "url api-key model rate load streams live-tokens rollouts rollout-tokens classless prompt-words warm-seconds seconds seed json"},
      {"bench score", "tokens vocabulary hidden profile threads isa seconds json"},
      {"bench prefill", "tokens seconds model profile threads device backend isa mla-norm-eps context json profile-operations trace overwrite"},
      {"bench decode", "streams prompt seconds model profile threads device backend isa mla-norm-eps context json profile-operations trace overwrite"},
      {"bench train",
       "sequences length data deposits by-kernel micro-batch checkpoint-activations optimizer-folder lora-rank seconds model profile threads device backend "
       "isa mla-norm-eps context json profile-operations trace overwrite"},
      {"bench rl",
       "prompts samples prompt tokens seconds model profile threads device backend isa mla-norm-eps context json profile-operations trace overwrite"},
      {"bench counters", "streams tokens prompt seconds model profile threads device backend isa mla-norm-eps context json profile-operations trace overwrite"},
      {"bench prefix",
       "prompts samples prompt tokens share seconds model profile threads device backend isa mla-norm-eps context json profile-operations trace overwrite"},
      {"plan", "flops model profile context json"},
      {"launch", "hosts hosts-file ranks restarts back-off take-back save-seconds resume-if-there agent mpirun mpirun-word log-file overwrite dry-run quiet"},
      {"simulate", "ranks device host-devices tokens length micro-batch checkpoint-activations adapter-rank profile json"},
      {"snapshot push", "parent base channel profile threads quiet json"},
      {"snapshot pull", "base downloads parallel stall-seconds overwrite threads quiet json"},
      {"snapshot show", "json"},
      {"snapshot diff", "threads quiet json"},
      {"snapshot verify", "threads quiet json"},
      {"snapshot squash", "threads quiet json"},
      {"snapshot mirror", "channel full-every follow downloads parallel stall-seconds threads quiet json"},
      {"snapshot prune", "keep dry-run json"},
      {"deploy", "name to url api-key seconds json"},
      {"rollback", "url api-key seconds json"},
      {"fleet status", "quorum json"},
      {"fleet watch", "quorum until-ready seconds json"},
      {"shapes list", "model mode shapes json"},
      {"shapes show", "lora-rank shapes json"},
      {"shapes resolve", "model context lora-rank forward-only accelerator count shapes json"},
      {"doctor", "quick ranks json"},
  };
  return all;
}

using Places = std::set<std::string>;
// The options of a command's help, and what each says behind "refused".
std::map<std::string, Places> options_of(const std::string& command) {
  testing::internal::CaptureStdout();
  run_words(command, "--help");
  std::istringstream help(testing::internal::GetCapturedStdout());
  std::map<std::string, Places> options;
  std::string line, name, text;
  const auto keep = [&] {
    if (name.empty() || name == "help" || name == "config" || name == "log-level") return;  // every command's
    Places& places = options[name];
    const std::string word = "refused ";
    for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at)) {
      at += word.size();
      places.insert(text.substr(at, std::min(text.find("; ", at), text.rfind(')')) - at));
    }
  };
  while (std::getline(help, line)) {
    if (line.starts_with("  --")) {
      keep();
      name = line.substr(4, line.find_first_of(" \n", 4) - 4);
      if (name == "set" && line.find("KEY=VALUE") != std::string::npos) name = "help";  // --config's
      text.clear();
    }
    const std::size_t begin = line.find_first_not_of(' ');
    if (begin != std::string::npos) text += (text.empty() ? "" : " ") + line.substr(begin);
  }
  keep();
  return options;
}

TEST(OptionTables, EveryOptionHasAnEffectOrIsRefused) {
  std::set<std::string> covered;
  for (const auto& [command, names] : effective_options()) {
    covered.insert(words_of(command).front());
    std::set<std::string> effective;
    for (const std::string& name : words_of(names)) effective.insert(name);
    std::map<std::string, Places> idle;
    for (const Idle& row : idle_options())
      if (row.command == command) idle[row.option].insert(row.where);
    const std::map<std::string, Places> options = options_of(command);
    EXPECT_FALSE(options.empty()) << command;
    for (const auto& [name, refused] : options) {
      const auto row = idle.find(name);
      EXPECT_EQ(refused, row == idle.end() ? Places() : row->second) << command << " --" << name;
      EXPECT_TRUE(effective.contains(name) != (row != idle.end()))
          << command << " --" << name << ": say here that it always has an effect, or mark its row with OptionTable::refused and say here where";
    }
    for (const std::string& name : effective) EXPECT_TRUE(options.contains(name)) << command << " has no --" << name << " any more";
    for (const auto& [name, where] : idle) EXPECT_TRUE(options.contains(name)) << command << " has no --" << name << " any more";
  }
  for (const Command& command : commands()) EXPECT_TRUE(covered.contains(std::string(command.name))) << command.name;
}

TEST(OptionTables, WhatDoesNothingIsRefused) {
  for (const Idle& row : idle_options()) {
    const std::string option = std::string("--") + row.option + (*row.value ? std::string("=") + row.value : "");
    try {
      run_words(row.command, std::string(row.with) + " " + option);
      ADD_FAILURE() << row.command << " " << row.with << " " << option << " was accepted";
    } catch (const UsageError& e) {
      EXPECT_EQ(std::string(e.what()), std::string("--") + row.option + " does nothing " + row.where + "; allowed is to leave it out")
          << row.command << " " << row.with;
    }
  }
}

// What a model lacks is refused of that model alone: with one that has it, what is wrong is something else.
TEST(OptionTables, AModelThatHasTheMechanismTakesItsOptions) {
  for (const char* option : {"--router-bias-rate=0.5", "--train-indexer", "--index-from=5", "--sparse-from=5"}) try {
      run_words("train sft", std::string(kSparse) + " " + option);
      ADD_FAILURE() << option << " is trained without --steps";
    } catch (const UsageError& e) {
      EXPECT_NE(std::string(e.what()).find("--environment needs --steps"), std::string::npos) << option << ": " << e.what();
    }
}

TEST(OptionTables, AFileMaySayTheDefaultOfWhatIsOff) {
  std::int64_t size = 5;
  bool on = false;
  const auto parse = [&](const Words& arguments) {
    size = 5, on = false;
    OptionTable table("x", "X.", {});
    table.flag("on", &on, "On");
    table.integer("size", &size, 0, 9, "N", "Size");
    table.refused("without --on", [&] { return !on; });
    table.accept_config();
    table.parse(arguments);
  };
  const std::string file = testing::TempDir() + "/lockstep-option-tables.toml";
  const auto write = [&](const char* text) {
    std::FILE* out = std::fopen(file.c_str(), "w");
    std::fputs(text, out);
    std::fclose(out);
  };
  write("on = false\nsize = 5\n");
  parse({"--config", file});
  write("size = 6\n");
  EXPECT_THROW(parse({"--config", file}), UsageError);
  parse({"--config", file, "--on"});
  EXPECT_EQ(size, 6);
  EXPECT_THROW(parse({"--size", "5"}), UsageError);
  EXPECT_THROW(parse({"--set", "size=5"}), UsageError);
  parse({"--on", "--size", "7"});
}

}  // namespace
}  // namespace lockstep
