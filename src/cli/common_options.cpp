#include "cli/common_options.h"

namespace lockstep {

void add_device_options(OptionTable& table, RuntimeSettings& settings) {
  table.choice("profile", &settings.profile, profile_names(), "Numerics profile: which bits");
  table.integer("threads", &settings.threads, 0, 4096, "N", "Threads, 0: one a processor; changes no bit");
  table.choice("device", &settings.device, device_names(), "What computes: cpu, or cuda, an NVIDIA GPU (docs/cuda.md says what was proved there)");
  table.choice("backend", &settings.backend, backend_names(), "How the cpu runs operations (emulated: the GPU's kernels); changes no bit");
  table.choice("isa", &settings.isa, instruction_set_names(), "Instruction set, auto: the widest there is; changes no bit");
  table.number("mla-norm-eps", &settings.mla_norm_eps, 0, 1, "X", "Epsilon of the latent norms, 0: the family's own");
  table.integer("context", &settings.context, 0, std::int64_t{1} << 30, "N", "Longest sequence, 0: the model's own, at most 65536");
}

void add_runtime_options(OptionTable& table, RuntimeSettings& settings) {
  table.model("model", &settings.model, "Model folder (Hugging Face: config.json, safetensors, tokenizer.json), or the name of a shipped model: countdown-glm");
  table.require();
  add_device_options(table, settings);
}

void add_ranks_option(OptionTable& table, std::string* ranks) {
  table.text("ranks", ranks, "LAYOUT", "Ranks, such as tp=2,dp=2,ep=2 (docs/ranks.md; empty: one): threads of this process that share --threads; changes no bit");
}

void add_json_option(OptionTable& table, bool* json, std::string one_line) {
  table.flag("json", json, std::move(one_line));
  table.command_line_only();
}

}  // namespace lockstep
