// Options and display of commands that read stores over a network (`snapshot pull`, `snapshot mirror`).
//   FarOptions far;  add_far_options(table, far, "default: OUT.lockstep.downloads");   ByteDisplay display("download", quiet);
#pragma once
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "cli/options.h"
#include "observe/progress.h"

namespace lockstep {

struct FarOptions {
  std::string downloads;
  std::int64_t parallel = 4;
  double stall_seconds = 30;
};

inline void add_far_options(OptionTable& table, FarOptions& far, const std::string& default_folder) {
  table.text("downloads", &far.downloads, "FOLDER", "Folder for what comes over a network meanwhile, and goes on there after a kill; " + default_folder);
  table.integer("parallel", &far.parallel, 1, 64, "N", "Transfers at a time, over a network");
  table.number("stall-seconds", &far.stall_seconds, 1, 3600, "S", "Begin a transfer again that brings less than 1000 bytes a second for so long");
}

// Megabytes that came, of how many; the rate and the time left. Any thread.
class ByteDisplay {
 public:
  ByteDisplay(std::string label, bool quiet) : label_(std::move(label)), quiet_(quiet) {}
  void begin(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (!progress_ && bytes > 0)
      progress_.emplace(Progress::Options{.label = label_, .total = static_cast<std::int64_t>((bytes + 999'999) / 1'000'000), .unit = "MB", .quiet = quiet_});
  }
  void advance(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (!progress_) return;
    const auto before = static_cast<std::int64_t>(bytes_ / 1'000'000);
    bytes_ += bytes;
    progress_->advance(static_cast<std::int64_t>(bytes_ / 1'000'000) - before, static_cast<double>(bytes) / 1e6);
  }
  void finish() {
    const std::lock_guard lock(mutex_);
    progress_.reset();
  }

 private:
  std::string label_;
  bool quiet_;
  std::mutex mutex_;
  std::optional<Progress> progress_;
  std::uint64_t bytes_ = 0;
};

}  // namespace lockstep
