// For tests of jobs: the settings that small runs of the shipped model have in common, and what they wrote.
//   settings_of_run(job.run, job.stack.runtime, root, "first");   run_rl(job);   const auto steps = metrics_of(root / "first");
#pragma once
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runs/run.h"
#include "serving/loading.h"

namespace lockstep {

// models/countdown-glm on one thread, in root/name, without progress.
inline void settings_of_run(RunSettings& run, RuntimeSettings& runtime, const std::filesystem::path& root, const std::string& name) {
  run.name = name;
  run.runs = root.string();
  run.quiet = true;
  runtime.model = (std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "models/countdown-glm").string();
  runtime.threads = 1;
}

// The lines of a run's metrics.jsonl.
inline std::vector<nlohmann::json> metrics_of(const std::filesystem::path& run) {
  std::ifstream in(run / "metrics.jsonl");
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

}  // namespace lockstep
