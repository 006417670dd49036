#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/error.h"

namespace lockstep {

std::shared_ptr<const MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0)
    fail(errno == ENOENT ? ErrorCode::not_found : ErrorCode::io, "cannot open '{}': {}", path.string(), std::generic_category().message(errno));
  std::shared_ptr<MappedFile> file(new MappedFile);
  struct stat status {};
  int error = fstat(descriptor, &status) == 0 ? 0 : errno;
  if (error == 0 && !S_ISREG(status.st_mode)) error = EISDIR;
  if (error == 0 && status.st_size > 0) {
    void* const data = mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (data == MAP_FAILED) error = errno;
    else file->data_ = data, file->size_ = static_cast<std::size_t>(status.st_size);
  }
  ::close(descriptor);
  if (error != 0) fail(ErrorCode::io, "cannot read '{}': {}", path.string(), std::generic_category().message(error));
  return file;
}

MappedFile::~MappedFile() {
  if (data_) munmap(data_, size_);
}

}  // namespace lockstep
