// The log: one line an event on stderr, `2026-01-31T12:00:00.123Z info  checkpoint saved  step=40 seconds=0.21`.
//   log_info("checkpoint saved", {{"step", 40}, {"path", path}});
// Any thread may log; a line is written whole. Fields with secret names (api_key, authorization, password, ...) are never written out; nobody
// should pass them. Control characters of user data are escaped: a log line is one line.
#pragma once
#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

namespace lockstep {

enum class LogLevel { debug, info, warning, error, off };

// The lowest level that is written; info at the start (the program: --log-level).
void set_log_level(LogLevel level);
LogLevel log_level();
// "debug", "info", "warning", "error", "off"; anything else: Error invalid_argument.
LogLevel parse_log_level(std::string_view name);

// Lines as above, or each a JSON object: {"time": ..., "level": ..., "message": ..., and the fields}.
enum class LogFormat { text, json };
void set_log_format(LogFormat format);
// "text", "json"; anything else: Error invalid_argument.
LogFormat parse_log_format(std::string_view name);

struct LogField {
  template <class T>
  LogField(std::string_view field, const T& v) : name(field), value(text_of(v)), bare(is_bare(v)) {}
  std::string_view name;
  std::string value;
  bool bare = false;  // a number or a boolean, which JSON writes without quotes

 private:
  template <class T>
  static std::string text_of(const T& v) {
    if constexpr (std::is_floating_point_v<T>) return fmt::format("{:.6g}", v);
    else return fmt::format("{}", v);
  }
  template <class T>
  static bool is_bare(const T& v) {
    if constexpr (std::is_same_v<T, char>) return false;
    else if constexpr (std::is_floating_point_v<T>) return v - v == 0;  // JSON has no infinity
    else return std::is_arithmetic_v<T>;
  }
};
using LogFields = std::initializer_list<LogField>;

void write_log(LogLevel level, std::string_view message, LogFields fields = {});
inline void log_debug(std::string_view message, LogFields fields = {}) { write_log(LogLevel::debug, message, fields); }
inline void log_info(std::string_view message, LogFields fields = {}) { write_log(LogLevel::info, message, fields); }
inline void log_warning(std::string_view message, LogFields fields = {}) { write_log(LogLevel::warning, message, fields); }
inline void log_error(std::string_view message, LogFields fields = {}) { write_log(LogLevel::error, message, fields); }

// The line that write_log writes, without the time: for tests.
std::string format_log_line(LogLevel level, std::string_view message, LogFields fields);
std::string format_json_log_line(LogLevel level, std::string_view message, LogFields fields, std::string_view time);

}  // namespace lockstep
