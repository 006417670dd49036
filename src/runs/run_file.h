// Reads one file of a run while another process writes it: only plain files, in pieces, cut at whole lines.
//   RunFile file(path); if (file) for_each_line(file.read(0, file.size()), use);
// Failures give an empty answer, not an error: a file may vanish at any time. One thread.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace lockstep {

class RunFile {
 public:
  explicit RunFile(const std::filesystem::path& path);
  ~RunFile();
  RunFile(const RunFile&) = delete;
  RunFile& operator=(const RunFile&) = delete;

  explicit operator bool() const { return descriptor_ >= 0; }
  std::int64_t size() const { return size_; }         // when it was opened
  double modified() const { return modified_; }       // unix seconds
  std::string identity() const { return identity_; }  // changes when the file is replaced
  // At most `bytes` from `offset`; fewer where the file ends.
  std::string read(std::int64_t offset, std::int64_t bytes) const;

 private:
  int descriptor_ = -1;
  std::int64_t size_ = 0;
  double modified_ = 0;
  std::string identity_;
};

// Calls use(line) for every line that has its end; returns the bytes they take.
template <class F>
std::size_t for_each_line(std::string_view text, F&& use) {
  std::size_t at = 0;
  for (std::size_t end; (end = text.find('\n', at)) != std::string_view::npos; at = end + 1) use(text.substr(at, end - at));
  return at;
}

// Whether a process holds flock on the file, without touching the lock (a test by locking could refuse a run its start).
bool is_locked(const std::filesystem::path& path);

}  // namespace lockstep
