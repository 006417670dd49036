#include "runs/run_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

namespace lockstep {

RunFile::RunFile(const std::filesystem::path& path) {
  // O_NONBLOCK: a FIFO must not hold us up before we see that it is one.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) return;
  struct stat s {};
  if (fstat(descriptor_, &s) != 0 || !S_ISREG(s.st_mode)) {
    close(descriptor_);
    descriptor_ = -1;
    return;
  }
  size_ = s.st_size;
  modified_ = static_cast<double>(s.st_mtim.tv_sec) + static_cast<double>(s.st_mtim.tv_nsec) * 1e-9;
  identity_ = fmt::format("{:x}-{:x}", s.st_dev, s.st_ino);
}

RunFile::~RunFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

std::string RunFile::read(std::int64_t offset, std::int64_t bytes) const {
  std::string data(static_cast<std::size_t>(std::clamp<std::int64_t>(size_ - offset, 0, bytes)), '\0');
  std::size_t done = 0;
  while (done < data.size()) {
    const ssize_t got = pread(descriptor_, data.data() + done, data.size() - done, offset + static_cast<std::int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  data.resize(done);
  return data;
}

bool is_locked(const std::filesystem::path& path) {
  struct stat s {};
  if (stat(path.c_str(), &s) != 0) return false;
  // "3: FLOCK  ADVISORY  WRITE 4711 fe:01:2883620 0 EOF". The device's number may be another one in a container: the inode decides.
  const std::string inode = fmt::format(":{} ", s.st_ino);
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);)
    if (line.find("FLOCK") != std::string::npos && line.find(inode) != std::string::npos) return true;
  return false;
}

}  // namespace lockstep
