#include "base/log.h"

#include <fmt/chrono.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>

#include "base/choice.h"

namespace lockstep {
namespace {
std::atomic<LogLevel> lowest{LogLevel::info};
std::atomic<LogFormat> chosen_format{LogFormat::text};
constexpr std::array<std::string_view, 5> kLevelNames = {"debug", "info", "warning", "error", "off"};

bool is_secret(std::string_view name) {
  static constexpr std::array<std::string_view, 9> names = {"api_key",      "authorization", "password",   "passwd", "secret",
                                                            "access_token", "refresh_token", "credential", "cookie"};
  std::string lower(name);
  for (char& c : lower) c = c == '-' ? '_' : (c >= 'A' && c <= 'Z') ? static_cast<char>(c + 32) : c;
  for (std::string_view secret : names)
    if (lower.find(secret) != std::string::npos) return true;
  return false;
}

void append_escaped(std::string& out, std::string_view text) {
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') out += "\\n";
    else if (byte < 0x20 || byte == 0x7f) out += fmt::format("\\x{:02x}", byte);
    else out += c;
  }
}

void append_value(std::string& out, std::string_view value) {
  const bool quoted = value.empty() || value.find_first_of(" =\"") != std::string_view::npos;
  if (!quoted) return append_escaped(out, value);
  out += '"';
  for (std::size_t begin = 0;;) {
    const std::size_t quote = value.find('"', begin);
    append_escaped(out, value.substr(begin, quote - begin));
    if (quote == std::string_view::npos) break;
    out += "\\\"";
    begin = quote + 1;
  }
  out += '"';
}
}  // namespace

void set_log_level(LogLevel level) { lowest.store(level, std::memory_order_relaxed); }
LogLevel log_level() { return lowest.load(std::memory_order_relaxed); }

LogLevel parse_log_level(std::string_view name) {
  for (std::size_t i = 0; i < kLevelNames.size(); ++i)
    if (kLevelNames[i] == name) return static_cast<LogLevel>(i);
  fail_choice("log level", name, {kLevelNames.begin(), kLevelNames.end()});
}

std::string format_log_line(LogLevel level, std::string_view message, LogFields fields) {
  std::string line = fmt::format("{:<7} ", kLevelNames[static_cast<std::size_t>(level)]);
  append_escaped(line, message);
  if (fields.size() != 0) line += ' ';
  for (const LogField& field : fields) {
    line += ' ';
    line += field.name;
    line += '=';
    append_value(line, is_secret(field.name) ? std::string_view("(secret)") : std::string_view(field.value));
  }
  return line;
}

namespace {
// A JSON string. Bytes that are no UTF-8 become '?', so that a line is JSON whatever a client sent.
void append_json(std::string& out, std::string_view text) {
  out += '"';
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x80) {
      if (byte == '"' || byte == '\\') (out += '\\') += text[i];
      else if (byte < 0x20 || byte == 0x7f) out += fmt::format("\\u{:04x}", byte);
      else out += text[i];
      ++i;
      continue;
    }
    const std::size_t length = byte >= 0xF5 || byte < 0xC2 ? 0 : byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
    bool whole = length > 0 && text.size() - i >= length;
    for (std::size_t k = 1; whole && k < length; ++k) whole = (static_cast<unsigned char>(text[i + k]) & 0xC0) == 0x80;
    if (whole && length > 2) {  // overlong forms, surrogates, above U+10FFFF
      const auto second = static_cast<unsigned char>(text[i + 1]);
      whole = !(byte == 0xE0 && second < 0xA0) && !(byte == 0xED && second > 0x9F) && !(byte == 0xF0 && second < 0x90) && !(byte == 0xF4 && second > 0x8F);
    }
    if (whole) out += text.substr(i, length);
    else out += '?';
    i += whole ? length : 1;
  }
  out += '"';
}
}  // namespace

void set_log_format(LogFormat format) { chosen_format.store(format, std::memory_order_relaxed); }

LogFormat parse_log_format(std::string_view name) {
  if (name == "text") return LogFormat::text;
  if (name == "json") return LogFormat::json;
  fail_choice("log format", name, {"text", "json"});
}

std::string format_json_log_line(LogLevel level, std::string_view message, LogFields fields, std::string_view time) {
  std::string line = "{\"time\":";
  append_json(line, time);
  line += ",\"level\":";
  append_json(line, kLevelNames[static_cast<std::size_t>(level)]);
  line += ",\"message\":";
  append_json(line, message);
  for (const LogField& field : fields) {
    line += ',';
    append_json(line, field.name);
    line += ':';
    if (is_secret(field.name)) line += "\"(secret)\"";
    else if (field.bare) line += field.value;
    else append_json(line, field.value);
  }
  return line + "}";
}

void write_log(LogLevel level, std::string_view message, LogFields fields) {
  if (level < log_level() || level == LogLevel::off) return;
  const auto now = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
  const std::string time =
      fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(now)), now.time_since_epoch().count() % 1000);
  static const bool terminal = isatty(STDERR_FILENO) == 1;
  // On a terminal a progress bar may occupy this line: it is overwritten, and draws itself again.
  const std::string line = chosen_format.load(std::memory_order_relaxed) == LogFormat::json
                               ? format_json_log_line(level, message, fields, time) + "\n"
                               : fmt::format("{}{} {}\n", terminal ? "\r\033[K" : "", time, format_log_line(level, message, fields));
  // One write per line, so that lines of several threads do not mix. Failed writes are ignored.
  while (write(STDERR_FILENO, line.data(), line.size()) < 0 && errno == EINTR) {
  }
}

}  // namespace lockstep
