#include "launch/run_progress.h"

#include <sys/stat.h>

#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>

namespace lockstep {

namespace {
constexpr std::int64_t kTail = 1 << 16;  // bytes: a line of metrics.jsonl is far shorter

std::string end_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  const std::int64_t size = file.tellg();
  const std::int64_t begin = size > kTail ? size - kTail : 0;
  std::string text(static_cast<std::size_t>(size - begin), '\0');
  file.seekg(begin);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}
}  // namespace

bool RunProgress::begun() const {
  std::error_code error;
  return std::filesystem::exists(folder_ / "config.json", error);
}

RunProgress::Seen RunProgress::seen() const {
  struct stat status {};
  if (::stat((folder_ / "metrics.jsonl").c_str(), &status) != 0) return {};
  return {status.st_ino, status.st_size, std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
}

std::int64_t RunProgress::read_saved() const {
  const std::string name = end_of_file(folder_ / "checkpoints" / "latest");  // "step-000123\n"
  std::int64_t step = 0;
  const std::size_t digits = name.find('-') + 1;  // 0: there is none
  if (digits > 0) std::from_chars(name.data() + digits, name.data() + name.size(), step);
  return step;
}

std::int64_t RunProgress::read_step() const {
  const std::string text = end_of_file(folder_ / "metrics.jsonl");
  const std::size_t end = text.rfind('\n');  // what follows is being written
  if (end == std::string::npos || end == 0) return 0;
  const std::size_t before = text.rfind('\n', end - 1);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  const nlohmann::json line =
      nlohmann::json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin), text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
  if (!line.is_object()) return 0;
  const auto step = line.find("step");
  return step != line.end() && step->is_number_integer() ? step->get<std::int64_t>() : 0;
}

void RunProgress::begin() {
  saved_ = from_ = step_ = read_saved();
  before_ = seen();
}

bool RunProgress::look() {
  saved_ = read_saved();
  if (seen() == before_) return step_ > from_;
  before_ = {};  // from now on the file is this start's
  if (const std::int64_t step = read_step(); step > from_) step_ = step;
  return step_ > from_;
}

}  // namespace lockstep
