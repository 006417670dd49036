// For tests: a safetensors file in memory, a temporary folder, the error that a call throws.
#pragma once
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/safetensors.h"

namespace lockstep {

// `values` in the order of the file (by type, then by name).
inline std::string safetensors_bytes(std::vector<SafetensorsWriter::Entry> entries, const std::vector<std::vector<float>>& values) {
  std::string bytes;
  SafetensorsWriter writer([&](const void* data, std::size_t n) { bytes.append(static_cast<const char*>(data), n); }, std::move(entries));
  for (const std::vector<float>& v : values) writer.write(v);
  writer.finish();
  return bytes;
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "lockstep-checkpoint-XXXXXX").string();
    if (mkdtemp(name.data())) path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Runs `work`, which must throw Error `code` with all `parts` in what().
template <class F>
void expect_error(ErrorCode code, const std::vector<std::string>& parts, F&& work) {
  try {
    work();
    ADD_FAILURE() << "no error; expected " << error_code_name(code);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    for (const std::string& part : parts) EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what() << "\nlacks: " << part;
  }
}

}  // namespace lockstep
