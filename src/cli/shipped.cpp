#include "cli/shipped.h"

#include <filesystem>
#include <system_error>

namespace lockstep {
namespace fs = std::filesystem;
namespace {
// Empty where /proc cannot be read.
fs::path own_file() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error);
}
}  // namespace

std::string shipped(std::string_view folder, const std::string& given) {
  std::error_code error;
  if (given.empty() || fs::exists(given, error)) return given;
  std::string_view name = given;
  if (name.starts_with(folder) && name.substr(folder.size()).starts_with('/')) name.remove_prefix(folder.size() + 1);
  while (name.ends_with('/')) name.remove_suffix(1);
  if (name.empty() || name.front() == '.' || name.find('/') != std::string_view::npos) return given;
  const fs::path program = own_file();
  if (program.empty()) return given;
  const fs::path found = program.parent_path().parent_path() / folder / name;
  return fs::exists(found, error) ? found.string() : given;
}

std::string program_name() {
  std::error_code error;
  const fs::path program = own_file(), here = fs::current_path(error);
  return !error && program == here / "build/lockstep" ? "build/lockstep" : "lockstep";
}

}  // namespace lockstep
