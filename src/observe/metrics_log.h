// The metrics of a run, `metrics.jsonl`: one JSON object per line, each with the integer "step". Any thread may append.
//   MetricsLog log = MetricsLog::resume(run / "metrics.jsonl", checkpoint_step);
//   log.append({{"step", 41}, {"loss", 0.5}});
// Lines are written at once. A resumed run first drops the entries after its checkpoint's step, so the file reads as if it had never stopped.
// Knows nothing of what the numbers mean.
#pragma once
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <nlohmann/json_fwd.hpp>

namespace lockstep {

class MetricsLog {
 public:
  // A new file. Errors: already_exists, io.
  static MetricsLog create(const std::filesystem::path& path);
  // The entries with step <= last_step stay, in their order; an unfinished last line (a crash) goes. A file that is not
  // there is made. Errors: corrupt_file with the line's number, io.
  static MetricsLog resume(const std::filesystem::path& path, std::int64_t last_step);
  ~MetricsLog();
  MetricsLog(MetricsLog&& other) noexcept;
  MetricsLog& operator=(MetricsLog&&) = delete;

  // One line, in one write. NaN and infinity become null. Errors: invalid_argument without
  // an integer "step"; io, and then no half line is left.
  void append(const nlohmann::ordered_json& entry);

 private:
  MetricsLog(std::filesystem::path path, int descriptor);
  std::filesystem::path path_;
  int descriptor_;
  std::mutex mutex_;
};

}  // namespace lockstep
