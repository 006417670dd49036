#include "cli/common_options.h"

#include <cstdlib>
#include <memory>

#include "base/log.h"
#include "trained/led_model.h"

namespace lockstep {

void add_device_options(OptionTable& table, RuntimeSettings& settings) {
  table.choice("profile", &settings.profile, profile_names(), "Numerics profile: number formats and orders of sums, which decide the bits");
  table.integer("threads", &settings.threads, 0, 4096, "N", "Threads, 0: one per processor; changes no bit");
  table.choice("device", &settings.device, device_names(), "Where to compute: cpu, or cuda, an NVIDIA GPU (docs/cuda.md says how it was tested)");
  table.choice("backend", &settings.backend, backend_names(), "How the CPU runs operations (emulated: with the GPU's kernels); changes no bit");
  table.choice("isa", &settings.isa, instruction_set_names(), "Instruction set, auto: the widest available; changes no bit");
  table.number("mla-norm-eps", &settings.mla_norm_eps, 0, 1, "X", "Epsilon of MLA's latent norms, 0: the family's default");
  table.integer("context", &settings.context, 0, std::int64_t{1} << 30, "N", "Longest sequence, 0: the model's own limit, at most 65536");
}

Option& add_model_option(OptionTable& table, RuntimeSettings& settings) {
  return table.model(
      "model", &settings.model,
      "Model folder (Hugging Face: config.json, safetensors, tokenizer.json), GGUF file, or the name of a shipped model: countdown-glm, agent-glm");
}

void add_runtime_options(OptionTable& table, RuntimeSettings& settings) {
  add_model_option(table, settings).required();
  add_device_options(table, settings);
}

void add_ranks_option(OptionTable& table, std::string* ranks) {
  table.text("ranks", ranks, "LAYOUT",
             "Tensor-, data-, expert- and context-parallel ranks and stages of a pipeline, such as tp=2,dp=2,ep=2,pp=2,cp=2 (docs/ranks.md; empty: one): "
             "threads of this process that share --threads; with shard=weights replicas keep shares of weights and accumulators, too (shard=state: of the "
             "optimizer's state alone), with rows=dealt the ranks of ep have sequences of their own, in training (rows=shared: the same); changes no bit");
}

void leave_training_ranks_out(std::string& ranks) {
  const RankLayout wished = rank_layout(ranks);
  const RankLayout used{.tp = wished.tp, .ep = wished.ep, .pp = wished.pp};
  if (used == wished) return;
  if (const ProcessMail* mail = joined_mail(); mail && mail->processes() > used.size())
    fail(ErrorCode::invalid_argument,
         "ranks is {}, of which {} compute where nothing is trained, and there are {} processes; allowed is tp x ep x pp of at least a rank for each",
         wished.text(), used.size(), mail->processes());
  log_warning("dp, cp, shard and rows deal out the sequences, weights and state of training steps, and nothing is trained here: they are left out",
              {{"ranks", wished.text()}, {"computes", used.text()}});
  ranks = used.text();
}

void add_transport_options(OptionTable& table, ProcessSettings& settings, bool devices) {
  const std::string of_devices = devices ? "; nccl: the same, and GPUs send to each other, a rank and a GPU a process (docs/cuda.md: it has not run)" : "";
  table.choice("transport", &settings.transport, devices ? transport_names() : std::vector<std::string>{"threads", "mpi"},
               "Where the ranks of --ranks run: as threads of this process, or (mpi) divided among the processes that mpirun started, as in `mpirun -n 2 "
               "lockstep COMMAND ... --ranks tp=2 --transport mpi` (docs/ranks.md)" +
                   of_devices + "; changes no bit");
  table.integer("rank-timeout", &settings.rank_timeout, 2, 86400, "SECONDS", "A process that is silent for so long counts as lost, and the command ends");
  table.refused("without --transport mpi", [&settings] { return settings.transport == "threads"; });
}

void add_draft_options(OptionTable& table, DraftOptions& drafts, std::string usual, std::string name, bool rejects) {
  const auto mode = std::make_shared<std::string>(std::move(usual)), acceptance = std::make_shared<std::string>("coupled");
  table.text(name, mode.get(), "auto|off|SOURCE,..",
             "Guess tokens ahead and check several in one forward: auto, as far as it pays; off; or always, from sources with commas (docs/speculation.md); "
             "changes no bit under coupled acceptance");
  table.integer("draft-tokens", &drafts.tokens, 1, DraftOptions::kMostTokens, "N", "Most tokens of a draft");
  table.refused(fmt::format("with --{} off", name), [mode] { return *mode == "off"; });
  if (rejects) {
    table.choice("acceptance", acceptance.get(), acceptance_names(),
                 "How guesses are checked. coupled: taken where they are what the model samples, which changes no bit; rejection: taken with the chance "
                 "min(1, p / q), else another token is drawn, which keeps the model's distribution and takes more of a layer's guesses");
    table.refused(fmt::format("with --{} off", name), [mode] { return *mode == "off"; });
  }
  table.after_reading([&drafts, mode, acceptance, name] {
    drafts = as_usage([&] {
      DraftOptions read = parse_drafts(*mode, drafts.tokens, "--" + name);
      read.acceptance = parse_acceptance(*acceptance, "--acceptance");
      check_acceptance(read, "--acceptance");
      return read;
    });
  });
}

std::string given_key(const std::string& key) {
  const char* held = std::getenv("LOCKSTEP_API_KEY");
  return key.empty() && held ? held : key;
}

void add_json_option(OptionTable& table, bool* json, std::string one_line) { table.flag("json", json, std::move(one_line)).command_line_only(); }

}  // namespace lockstep
