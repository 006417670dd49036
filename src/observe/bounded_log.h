// A log as metrics_log.h's that stays bounded: lines that are worth reading while they are new, such as transcripts. Once the
// file has half of its bytes it becomes NAME.1.jsonl (what stood there goes) and a new one begins, so both together hold at
// most `most_bytes` and one entry. Knows nothing of what the entries mean. Any thread may append.
//   BoundedLog log = BoundedLog::resume(run / "transcripts.jsonl", checkpoint_step, 32 << 20);
//   log.append({{"step", 41}, {"prompt", "3 4 5=27:"}});
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

  // One line, in one write. Errors: those of MetricsLog::append; io when the file cannot be changed for a new one.
  void append(const nlohmann::ordered_json& entry);

 private:
  BoundedLog(std::filesystem::path path, std::int64_t most_bytes);
  std::filesystem::path path_;
  std::int64_t most_bytes_;
  std::unique_ptr<MetricsLog> log_;
  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();
};

}  // namespace lockstep
