#include "observe/bounded_log.h"

#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.h"

namespace lockstep {
namespace fs = std::filesystem;

BoundedLog::BoundedLog(fs::path path, std::int64_t most_bytes) : path_(std::move(path)), most_bytes_(most_bytes) {}

fs::path BoundedLog::older_half(const fs::path& path) {
  fs::path older = path;
  return older.replace_extension(".1" + path.extension().string());
}

BoundedLog BoundedLog::resume(const fs::path& path, std::int64_t last_step, std::int64_t most_bytes) {
  BoundedLog log(path, most_bytes);
  const fs::path older = older_half(path);
  std::error_code error;
  if (fs::exists(older, error)) MetricsLog::resume(older, last_step);
  log.log_ = std::make_unique<MetricsLog>(MetricsLog::resume(path, last_step));
  // The change of files came after that step: it is taken back, and comes again at the same entry.
  if (fs::exists(older, error) && fs::file_size(path, error) == 0) {
    log.log_.reset();
    fs::rename(older, path, error);
    if (error) fail(ErrorCode::io, "cannot rename '{}': {}", older.string(), error.message());
    log.log_ = std::make_unique<MetricsLog>(MetricsLog::resume(path, last_step));
  }
  return log;
}

void BoundedLog::append(const nlohmann::ordered_json& entry) {
  const std::lock_guard lock(*mutex_);
  std::error_code error;
  const auto size = fs::file_size(path_, error);
  if (!error && size > 0 && static_cast<std::int64_t>(size) >= most_bytes_ / 2) {
    fs::rename(path_, older_half(path_), error);
    if (error) fail(ErrorCode::io, "cannot rename '{}': {}", path_.string(), error.message());
    log_ = std::make_unique<MetricsLog>(MetricsLog::create(path_));
  }
  log_->append(entry);
}

}  // namespace lockstep
