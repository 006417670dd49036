#include "observe/metrics_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/file.h"

namespace lockstep {
namespace fs = std::filesystem;

namespace {
std::string system_word(int error) { return std::generic_category().message(error); }

int open_for_append(const fs::path& path, int flags) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | flags, 0666);
  if (descriptor < 0) {
    const int error = errno;
    const ErrorCode code = error == EEXIST ? ErrorCode::already_exists : ErrorCode::io;
    fail(code, "cannot open '{}': {}", path.string(), system_word(error));
  }
  return descriptor;
}

std::int64_t step_of(const std::string& line, const fs::path& path, std::size_t number) {
  const auto entry = read_json_or_null(line);
  if (!entry.is_object() || !entry.contains("step") || !entry["step"].is_number_integer())
    fail(ErrorCode::corrupt_file, "line {} of '{}' is no JSON object with an integer \"step\"", number, path.string());
  return entry["step"].get<std::int64_t>();
}
}  // namespace

MetricsLog::MetricsLog(fs::path path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

MetricsLog::MetricsLog(MetricsLog&& other) noexcept : path_(std::move(other.path_)), descriptor_(other.descriptor_) { other.descriptor_ = -1; }

MetricsLog::~MetricsLog() {
  if (descriptor_ >= 0) close(descriptor_);
}

MetricsLog MetricsLog::create(const fs::path& path) { return {path, open_for_append(path, O_EXCL)}; }

MetricsLog MetricsLog::resume(const fs::path& path, std::int64_t last_step) {
  std::error_code error;
  if (fs::exists(path, error)) {
    std::ifstream in(path, std::ios::binary);
    if (!in) fail(ErrorCode::io, "cannot open '{}': {}", path.string(), system_word(errno));
    AtomicFile kept(path);
    std::string line;
    for (std::size_t number = 1; std::getline(in, line); ++number) {
      if (in.eof()) break;  // no newline: the write of this line was cut off
      if (step_of(line, path, number) <= last_step) kept.write(line + '\n');
    }
    if (in.bad()) fail(ErrorCode::io, "cannot read '{}': {}", path.string(), system_word(errno));
    kept.commit();
  }
  return {path, open_for_append(path, 0)};
}

void MetricsLog::append(const nlohmann::ordered_json& entry) {
  if (!entry.is_object() || !entry.contains("step") || !entry["step"].is_number_integer())
    fail(ErrorCode::invalid_argument, "an entry of '{}' is a JSON object with an integer \"step\"", path_.string());
  const std::string line = entry.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
  std::lock_guard lock(mutex_);
  struct stat before {};
  fstat(descriptor_, &before);
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t written = write(descriptor_, line.data() + done, line.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      if (done > 0 && ftruncate(descriptor_, before.st_size) != 0) {
        // The half line stays; resume drops it.
      }
      fail(ErrorCode::io, "cannot write to '{}': {}", path_.string(), system_word(error));
    }
    done += static_cast<std::size_t>(written);
  }
}

}  // namespace lockstep
