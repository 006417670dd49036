#include "cli/serve_training_options.h"

#include <limits>

#include "cli/keep_forward_options.h"

namespace lockstep {

void add_serve_training_options(OptionTable& table, ServeTrainingSettings& s) {
  const auto with_training = [&] { table.refused("without --training", [training = &s.training] { return !*training; }); };
  table.flag("training", &s.training, "Serve the training API too: clients of the `tinker` and `fireworks-ai` packages train on this model as a base");
  table.kept_folder("state", &s.state, "Folder of the training API's sessions and checkpoints; a server restarted on it continues");
  with_training();
  table.integer("token-seconds", &s.token_seconds, 0, 86400 * 30, "N",
                "Lifetime of the tokens for which clients of the training API exchange their keys; 0: they send their keys");
  with_training();
  table.texts("alias", &s.aliases, "NAME", "Another name of the base model for clients (Qwen/Qwen3-8B)");
  with_training();
  table.inputs("shapes", &s.shape_files, "FILE", "Training shapes besides the published ones, for clients that resolve them");
  with_training();
  table.integer("max-models", &s.options.max_models, 1, 1 << 16, "N",
                "Most clients' models in memory; the least recently used are moved to disk, with their gradients");
  with_training();
  table.integer("gradient-megabytes", &s.gradient_megabytes, 0, 1 << 30, "N",
                "Disk for gradients that no optim_step has taken, of all models; one API key has its --key-share of that. 0: a quarter of the disk that "
                "--state is on");
  with_training();
  table.integer("key-share", &s.options.key_share, 1, 100, "PERCENT",
                "Share of one API key in --gradient-megabytes, of --checkpoint-megabytes, of --body-megabytes, and of the limits of "
                "sessions, samplers, models on disk, checkpoints, jobs, deployments and promoted models");
  table.integer("metadata-kilobytes", &s.metadata_kilobytes, 1, 1 << 20, "N", "Largest user_metadata, and largest tags, of one session, model or checkpoint");
  with_training();
  table.integer("checkpoint-megabytes", &s.checkpoint_megabytes, 0, 1 << 30, "N",
                "Most megabytes of all checkpoints and promoted models; one API key has its --key-share of that. 0: half of the disk that --state is on");
  with_training();
  table.integer("gap-seconds", &s.gap_seconds, 1, 86400, "S",
                "A number of a model's operations that is missing for so long counts as skipped: those behind it go on, and a late one is an error");
  with_training();
  table.integer("session-days", &s.session_days, 0, 36500, "N",
                "Delete sessions that were idle for so long, with their models and samplers; checkpoints stay. 0: never");
  with_training();
  table.integer("session-idle-minutes", &s.session_idle_minutes, 0, 60 * 24 * 36500, "N",
                "The models of a session that was not heard from for so long leave memory, as those of one that was closed do; they come back when they are "
                "used. 0: never");
  with_training();
  table.integer("sampler-hours", &s.sampler_hours, 0, 24 * 36500, "N",
                "Delete unnamed sampler snapshots that were not sampled for so long. 0: with their session");
  with_training();
  table.integer("sampler-megabytes", &s.sampler_megabytes, 0, 1 << 24, "N",
                "Memory for sampler snapshots, and as much again for checkpoints that are sampled; more are moved to disk");
  with_training();
  table.flag("offload-optimizer", &s.options.offload_optimizer,
             "Keep the optimizer state of trained models in files under --state instead of in memory; no bit changes");
  with_training();
  table.flag("separate-passes", &s.separate_passes, "Train each adapter in separate passes, instead of small batches of several in one: slower, the same bits");
  with_training();
  table.integer("reuse-megabytes", &s.reuse_megabytes, 0, 1 << 24, "N",
                "Memory for forwards kept for the gradient of a custom loss, which then needs no second forward; 0: none");
  with_training();
  add_keep_forward_options(table, s.keep_forward, "samples'", with_training);
  table.choice("custom-loss", &s.custom_loss, {"server", "client"}, "Where traced losses of `tinker` clients run");
  with_training();
}

TrainingServiceOptions service_options(const ServeTrainingSettings& s) {
  TrainingServiceOptions options = s.options;
  options.state = s.state;
  options.share_passes = !s.separate_passes;
  const auto seconds = [](std::int64_t n, double unit) { return n > 0 ? static_cast<double>(n) * unit : std::numeric_limits<double>::infinity(); };
  options.session_seconds = seconds(s.session_days, 86400);
  options.gap_seconds = static_cast<double>(s.gap_seconds);
  options.sampler_seconds = seconds(s.sampler_hours, 3600);
  options.session_idle_seconds = seconds(s.session_idle_minutes, 60);
  options.gradient_bytes = s.gradient_megabytes << 20;
  options.sampler_bytes = s.sampler_megabytes << 20;
  options.metadata_bytes = s.metadata_kilobytes << 10;
  options.checkpoint_bytes = s.checkpoint_megabytes << 20;
  options.custom_losses = s.custom_loss == "server";
  options.reuse_bytes = s.reuse_megabytes << 20;
  return options;
}

}  // namespace lockstep
