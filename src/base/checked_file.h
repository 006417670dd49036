// A file of blocks that are read back exactly as written, or not at all. Each block is preceded by its length and its hash (XXH3-64, with its
// number), and the last says how many there were, so a flipped bit, a misplaced block and a truncated file are errors before any value of the block
// is used. commit() puts the file in place; syncing to disk is left to its folder (AtomicFolder syncs all its files). Gives way between blocks
// (base/give_way.h). Knows nothing of the contents. One thread at a time.
//   CheckedWriter out(path); out.write(values.data(), bytes); out.commit();   CheckedReader in(path); in.read(values.data(), bytes); in.finish();
#pragma once
#include <cstdint>
#include <filesystem>
#include <type_traits>
#include <vector>

#include "base/file.h"

namespace lockstep {

class CheckedWriter {
 public:
  // Errors, of all: io, with the system's word (disk full, ...).
  explicit CheckedWriter(std::filesystem::path path);
  ~CheckedWriter();
  CheckedWriter(const CheckedWriter&) = delete;
  CheckedWriter& operator=(const CheckedWriter&) = delete;
  void write(const void* data, std::size_t bytes);
  template <class T>
  void value(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    write(&value, sizeof(T));
  }
  template <class T>
  void values(const std::vector<T>& values) {
    static_assert(std::is_trivially_copyable_v<T>);
    value(static_cast<std::uint64_t>(values.size()));
    write(values.data(), values.size() * sizeof(T));
  }
  void commit();

 private:
  void put(const void* data, std::size_t bytes);

  std::filesystem::path path_, partial_;
  int descriptor_ = -1;
  std::uint64_t blocks_ = 0;
};

class CheckedReader {
 public:
  // Errors: not_found, io.
  explicit CheckedReader(const std::filesystem::path& path);
  ~CheckedReader();
  CheckedReader(const CheckedReader&) = delete;
  CheckedReader& operator=(const CheckedReader&) = delete;
  // The next block, which must have exactly `bytes` bytes. Errors: corrupt_file, io.
  void read(void* data, std::size_t bytes);
  template <class T>
  T value() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    read(&value, sizeof(T));
    return value;
  }
  // As CheckedWriter::values: at most as many as the file can hold. Error corrupt_file.
  template <class T>
  std::vector<T> values() {
    const auto count = value<std::uint64_t>();
    check_count(count, sizeof(T));
    std::vector<T> values(count);
    read(values.data(), count * sizeof(T));
    return values;
  }
  // Checks that no block follows. Error corrupt_file.
  void finish();
  // Throws corrupt_file with the file's path and `what`.
  [[noreturn]] void refuse(const std::string& what) const;

 private:
  void take(void* data, std::size_t bytes);
  void check_count(std::uint64_t count, std::size_t element) const;

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t bytes_ = 0, blocks_ = 0, at_ = 0, asked_ = 0;
};

}  // namespace lockstep
