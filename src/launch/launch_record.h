// What a launch did, for machines: one JSON object a line with "time" (seconds since 1970) and "event" (docs/cluster.md lists them).
//   LaunchRecord record("launch.jsonl", run); record.add("start", {{"ranks", "dp=2"}});
// Lines of a run whose folder is not begun yet wait for it: a folder that is there before the run begins would be refused. One thread.
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "launch/run_progress.h"

namespace lockstep {

class LaunchRecord {
 public:
  // Appends to `file`; empty: to launch.jsonl in the run's folder, once it is begun.
  LaunchRecord(const std::filesystem::path& file, std::filesystem::path run) : file_(file), run_(std::move(run)) {}
  ~LaunchRecord() { write(); }
  LaunchRecord(const LaunchRecord&) = delete;
  LaunchRecord& operator=(const LaunchRecord&) = delete;
  // A file that cannot be written is a warning, once.
  void add(const std::string& event, nlohmann::ordered_json fields);
  void write();  // what waits, if it may be written by now

 private:
  std::filesystem::path file_, run_;
  std::string waiting_;
  bool warned_ = false;
};

}  // namespace lockstep
