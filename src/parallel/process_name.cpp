#include "parallel/process_name.h"

#include <fmt/format.h>

#include <charconv>

namespace lockstep {

namespace {
// Takes `word` off the front of `text`.
bool takes(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}
template <class T>
bool takes_number(std::string_view& text, T& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}
}  // namespace

std::string ProcessName::text() const { return fmt::format("process {} (host {}, pid {})", process, host, pid); }

std::optional<ProcessName> find_process_name(std::string_view sentence) {
  constexpr std::string_view kFirst = "process ";
  for (std::size_t at = sentence.find(kFirst); at != std::string_view::npos; at = sentence.find(kFirst, at + 1)) {
    std::string_view rest = sentence.substr(at + kFirst.size());
    ProcessName name;
    if (!takes_number(rest, name.process) || !takes(rest, " (host ")) continue;
    const std::size_t comma = rest.find(", pid ");
    if (comma == std::string_view::npos || comma == 0) continue;
    name.host = rest.substr(0, comma);
    if (name.host.find_first_of(" (),") != std::string::npos) continue;  // of two names the second
    rest.remove_prefix(comma);
    if (takes(rest, ", pid ") && takes_number(rest, name.pid) && rest.starts_with(")")) return name;
  }
  return std::nullopt;
}

}  // namespace lockstep
