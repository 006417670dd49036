#include "cli/foreign_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {
constexpr std::pair<std::string_view, std::string_view> kOptions[] = {{"max-model-len", "context"},
                                                                      {"ctx-size", "context"},
                                                                      {"num-ctx", "context"},
                                                                      {"max-seq-length", "context"},
                                                                      {"max-num-seqs", "max-open"},
                                                                      {"served-model-name", "name"},
                                                                      {"gpu-memory-utilization", "memory-megabytes"},
                                                                      {"tensor-parallel-size", "ranks"},
                                                                      {"quantization", "frozen-base"},
                                                                      {"load-in-4bit", "frozen-base"},
                                                                      {"quantization", "profile"},
                                                                      {"load-in-4bit", "profile"},
                                                                      {"lora-modules", "adapter"},
                                                                      {"enable-lora", "adapter"},
                                                                      {"lora", "adapter"},
                                                                      {"tool-call-parser", "message-format"},
                                                                      {"n-predict", "max-tokens"},
                                                                      {"max-new-tokens", "max-tokens"},
                                                                      {"max-completion-length", "max-tokens"},
                                                                      {"repeat-penalty", "repetition-penalty"},
                                                                      {"n-threads", "threads"},
                                                                      {"json-schema-file", "schema"},
                                                                      {"model-name-or-path", "model"},
                                                                      {"dataset", "data"},
                                                                      {"dataset-name", "data"},
                                                                      {"output-dir", "runs"},
                                                                      {"lr", "learning-rate"},
                                                                      {"batch-size", "batch"},
                                                                      {"per-device-train-batch-size", "batch"},
                                                                      {"num-train-epochs", "epochs"},
                                                                      {"max-steps", "steps"},
                                                                      {"warmup-steps", "warmup"},
                                                                      {"lora-rank", "adapter-rank"},
                                                                      {"lora-r", "adapter-rank"},
                                                                      {"lora-alpha", "adapter-alpha"},
                                                                      {"gradient-checkpointing", "checkpoint-activations"},
                                                                      {"lr-scheduler-type", "schedule"},
                                                                      {"loss-type", "loss"},
                                                                      {"max-grad-norm", "max-norm"},
                                                                      {"eval-steps", "eval-every"},
                                                                      {"save-steps", "checkpoint-every"},
                                                                      {"num-generations", "rollouts"},
                                                                      {"resume-from-checkpoint", "resume"},
                                                                      {"verbose", "log-level"},
                                                                      {"kv-cache-dtype", "profile"},
                                                                      {"dtype", "profile"}};
constexpr std::pair<std::string_view, std::string_view> kCommands[] = {
    {"run", "here it is `lockstep chat --model DIR`"},
    {"sft", "here it is `lockstep train sft`"},
    {"rl", "here it is `lockstep train rl`"},
    {"grpo", "here it is `lockstep train rl`"},
    {"dpo", "here it is `lockstep train dpo`"},
    {"kto", "here it is `lockstep train kto`"},
    {"orpo", "here it is `lockstep train orpo`"},
    {"cpo", "here it is `lockstep train cpo`"},
    {"show", "here it is `lockstep info DIR`"},
    {"pull", "a model is a folder on this machine, which `hf download ORGANISATION/MODEL --local-dir DIR` makes"},
    {"list", "a model is a folder on this machine, and nobody keeps a list"}};
}  // namespace

std::string own_option(std::string_view name, const std::vector<std::string>& names) {
  for (const auto& [foreign, own] : kOptions) {
    const std::string shown = fmt::format("--{}", own);
    if (foreign == name && std::find(names.begin(), names.end(), shown) != names.end()) return fmt::format("; here it is {}", shown);
  }
  return {};
}

std::string own_command(std::string_view name) {
  for (const auto& [foreign, own] : kCommands)
    if (foreign == name) return fmt::format("; {}", own);
  return {};
}

}  // namespace lockstep
