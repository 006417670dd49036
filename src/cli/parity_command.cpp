// `lockstep parity`: fuzzes everything that must not change a bit, and reports whether anything did; or repeats a difference that a run has found.
#include <cstdio>

#include "base/signals.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "parity/parity.h"
#include "parity/parity_case.h"
#include "trained/led_model.h"

namespace lockstep {

namespace {
int repeat_difference(const std::string& file, bool json) {
  install_interrupt_handlers();
  const CaseReport report = repeat_case(file, {.quiet = false, .stop = interrupt_token()});
  std::printf("%s", json ? (to_json(report).dump() + "\n").c_str() : to_text(report).c_str());
  return report.repeated() ? kExitError : kExitOk;
}
}  // namespace

int parity_command(const Arguments& arguments) {
  std::string model, file;
  double mla_norm_eps = 0;
  ParityOptions options;
  options.quiet = false;
  bool json = false;
  ProcessSettings processes;
  OptionTable table("parity",
                    "Compares bit by bit: the training forward with prefill, chunked prefill, decoding, prefix hits and "
                    "preemption among random batch neighbours, and "
                    "optimizer steps over micro-batch, order and checkpointing; over threads, instruction sets, "
                    "backends, page sizes. Exit code 1 "
                    "on a different bit, a path that did not run, or a negative control (another leaf count) that was "
                    "not found at the right operation. With --case: computes again a difference that `train rl` or `train distill` has found; exit code 1 when "
                    "ways differ here "
                    "too, 0 when it cannot be repeated.",
                    {"lockstep parity --model models/countdown-glm --fuzz 100", "lockstep parity --model models/countdown-glm --fuzz 1000 --seed 7 --json",
                     "lockstep parity --case runs/rl/difference/case.json"});
  table.model("model", &model, "Model folder (Hugging Face: config.json, safetensors) or GGUF file; needed without --case");
  table.input("case", &file, "FILE",
              "A difference between sampling and training, as `train rl` and `train distill` leave it: its text is scored again in the sampler's ways and in "
              "the trainer's");
  table.integer("fuzz", &options.cases, 0, 10'000'000, "N", "Random sequences, in addition to lengths at the edges of blocks and pages");
  table.seed("seed", &options.seed, "Seed of everything random");
  table.choice("profile", &options.profile, profile_names(), "Numerics profile: number formats and orders of sums, which decide the bits");
  table.text("ranks", &options.ranks, "LAYOUT", "One more layout of ranks, such as tp=2,dp=2,ep=2, besides those that are always compared");
  add_transport_options(table, processes, false);
  table.choice("device", &options.device, {"cpu", "emulated", "cuda"},
               "A device to compare beside the CPU: a GPU, or its kernels run on the CPU (slow); docs/cuda.md");
  table.number("mla-norm-eps", &mla_norm_eps, 0, 1, "X", "Epsilon of MLA's latent norms, 0: the family's default");
  table.refused("with --case, whose file says it", [&] { return !file.empty(); },
                {"model", "fuzz", "seed", "profile", "ranks", "transport", "device", "mla-norm-eps"});
  add_json_option(table, &json);
  table.accept_config();
  if (!table.parse(arguments)) return kExitOk;
  if (!file.empty()) return repeat_difference(file, json);
  if (model.empty()) throw UsageError("--model DIR is missing, or --case FILE");

  if (processes.transport == "mpi" && options.ranks.empty())
    throw UsageError("transport is mpi and ranks is empty, allowed is a layout with a rank for each process, such as tp=2");
  join_processes(processes);
  options.lead = joined_mail();
  const ParityModel compared = load_parity_model(model, mla_norm_eps);
  if (follow_parity(compared)) return kExitOk;
  install_interrupt_handlers();
  options.stop = interrupt_token();
  const ParityReport report = run_parity(compared, options);
  std::printf("%s", json ? (to_json(report).dump() + "\n").c_str() : to_text(report).c_str());
  return report.passed() ? kExitOk : kExitError;
}

}  // namespace lockstep
