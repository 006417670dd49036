#include "host/acknowledged_numbers.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/error.h"
#include "base/file.h"

namespace lockstep {
namespace {
constexpr std::size_t kDigits = 19;  // of the largest: a number overwrites the one before in full
constexpr char kOpen = '+';          // behind the digits: there are gradients

void write_at(const std::string& path, std::string_view text, std::size_t at) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  const bool written = file >= 0 && pwrite(file, text.data(), text.size(), static_cast<off_t>(at)) == static_cast<ssize_t>(text.size());
  const int why = errno;
  if (file >= 0) close(file);
  if (!written) fail(ErrorCode::io, "{} cannot be written: {}", path, std::strerror(why));
}
}  // namespace

AcknowledgedNumbers::AcknowledgedNumbers(std::filesystem::path folder) : folder_(std::move(folder)) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) fail(ErrorCode::io, "the folder {} cannot be made: {}", folder_.string(), error.message());
}

void AcknowledgedNumbers::note(const std::string& model, std::int64_t number) {
  write_at((folder_ / model).string(), fmt::format("{:0{}}", number, kDigits), 0);
}

void AcknowledgedNumbers::note_gradients(const std::string& model, bool open) {
  if (open != has_gradients(model)) write_at((folder_ / model).string(), open ? std::string_view(&kOpen, 1) : " ", kDigits);
}

bool AcknowledgedNumbers::has_gradients(const std::string& model) const {
  std::error_code error;
  if (!std::filesystem::exists(folder_ / model, error)) return false;
  const std::string text = read_file(folder_ / model, kDigits + 1);
  return text.size() > kDigits && text[kDigits] == kOpen;
}

std::int64_t AcknowledgedNumbers::last(const std::string& model) const {
  std::error_code error;
  if (!std::filesystem::exists(folder_ / model, error)) return 0;
  const std::string text = read_file(folder_ / model, kDigits + 1);
  std::int64_t number = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  return fault == std::errc() && end == text.data() + kDigits ? number : 0;
}

void AcknowledgedNumbers::forget(const std::string& model) {
  std::error_code ignored;
  std::filesystem::remove(folder_ / model, ignored);
}

}  // namespace lockstep
