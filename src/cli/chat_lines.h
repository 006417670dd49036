// Reads lines from the terminal (with editing) or from a pipe. One thread.
//   const auto lines = terminal_lines("> "); while (lines->next(line) == ChatLines::Got::line) ...
#pragma once
#include <memory>
#include <string>

namespace lockstep {

class ChatLines {
 public:
  enum class Got { line, end, interrupt };
  virtual ~ChatLines() = default;
  // Reads the next line, without its line feed. interrupt: a signal came first (base/signals.h), and the unfinished line is dropped.
  // Errors: io; invalid_argument, a line above a megabyte.
  virtual Got next(std::string& line) = 0;
};

// Of stdin; bytes behind the last line feed make a line too.
std::unique_ptr<ChatLines> piped_lines();
// Of a terminal, edited with the arrow keys and with a history (libedit), for as long as this lives.
std::unique_ptr<ChatLines> terminal_lines(const std::string& prompt);

}  // namespace lockstep
