// A JSON-lines log of bounded size, for entries that matter while they are new, such as transcripts. Any thread may append.
//   BoundedLog log = BoundedLog::resume(run / "transcripts.jsonl", checkpoint_step, 32 << 20);
//   log.append({{"step", 41}, {"prompt", "3 4 5=27:"}});
// When the file reaches half of `most_bytes` it is renamed to NAME.1.jsonl, replacing the one before, and a new file begins; both together hold
// at most `most_bytes` and one entry. Otherwise as metrics_log.h. Knows nothing of what the entries mean.
#pragma once
#include <memory>

#include "observe/metrics_log.h"

namespace lockstep {

class BoundedLog {
 public:
  // Entries with step <= last_step stay, in both files; an unfinished last line goes. Errors: those of MetricsLog::resume.
  static BoundedLog resume(const std::filesystem::path& path, std::int64_t last_step, std::int64_t most_bytes);
  // "transcripts.jsonl" -> "transcripts.1.jsonl", where the older half is.
  static std::filesystem::path older_half(const std::filesystem::path& path);

  // One line, in one write. Errors: those of MetricsLog::append; io when the file cannot be replaced by a new one.
  void append(const nlohmann::ordered_json& entry);

 private:
  BoundedLog(std::filesystem::path path, std::int64_t most_bytes);
  std::filesystem::path path_;
  std::int64_t most_bytes_;
  std::unique_ptr<MetricsLog> log_;
  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();
};

}  // namespace lockstep
