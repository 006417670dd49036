#include "jobs/index_conversion.h"

#include "serving/conversion.h"

namespace lockstep {
namespace fs = std::filesystem;

fs::path training_folder(const std::string& to) {
  fs::path folder = fs::path(to).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // OUT/
  folder += "-training";
  return folder;
}

SftSummary convert_and_train(const IndexConversion& c) {
  const fs::path folder = training_folder(c.to);
  check_run_name(folder.filename().string());
  SftJob job;
  SftConfig& config = job.config;
  config.run.name = folder.filename().string();
  config.run.runs = folder.has_parent_path() ? folder.parent_path().string() : ".";
  config.run.resume = fs::exists(folder / "config.json");
  config.run.checkpoint_every = c.checkpoint_every;
  config.run.quiet = c.quiet;
  config.run.stop = c.stop;
  config.run.on_start = c.on_start;
  config.run.on_step = c.on_step;
  config.run.say = c.say;
  config.run.resolved = {{"name", config.run.name},      {"model", c.to},    {"from", c.from}, {"pattern", c.pattern}, {"data", c.data},
                         {"dense_steps", c.dense_steps}, {"dtype", c.dtype}, {"seed", c.seed}};
  // The folder that the run begins with is one like its export, so an interrupted run finds in it what it began with.
  if (!config.run.resume) convert_indexers(c.from, c.to, c.pattern, c.dtype == "bf16" ? DType::bf16 : DType::f32, c.overwrite);
  config.runtime.model = c.to;
  config.runtime.threads = c.threads;
  config.seed = c.seed;
  config.asked.steps = c.steps;
  config.asked.batch = c.batch;
  config.asked.learning_rate = c.learning_rate;
  config.indexer_alone = true;
  config.sparse_from = c.dense_steps;
  config.router_bias_rate = 0;
  config.transcripts = 0;
  config.export_dtype = c.dtype;
  config.export_to = c.to;
  config.overwrite = Overwrite::yes;
  job.data = c.data;
  job.reading = c.reading;
  return run_sft_job(job);
}

}  // namespace lockstep
