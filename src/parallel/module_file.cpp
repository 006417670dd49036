#include "parallel/module_file.h"

#include <filesystem>
#include <system_error>

namespace lockstep {

std::string module_file(const std::string& name) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const std::filesystem::path& file : {folder / name, folder / "../lib" / name})
    if (std::filesystem::exists(file, error)) return file.string();
  return name;
}

}  // namespace lockstep
