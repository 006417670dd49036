// A program that this one starts: found in PATH, its words handed over as they are (no shell), in a process group of its own, so that Ctrl-C reaches this
// program alone. Its stderr is read here, line by line; its stdin is empty, its stdout this program's or nobody's.
//   ChildProcess child({"mpirun", "-n", "2", ...}, {.stdout_is_ours = true}); for (const std::string& line : child.lines()) ...
//   if (const std::optional<int> status = child.ended()) ...
// One thread.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct ChildSettings {
  bool stdout_is_ours = false;
  std::vector<std::string> environment = {};  // NAME=VALUE, beside this program's
};

class ChildProcess {
 public:
  // Errors: not_found, io, with the program's name.
  explicit ChildProcess(const std::vector<std::string>& words, const ChildSettings& settings = {});
  // Kills it, if it runs, and waits for it.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Whole lines of its stderr that came since the last call, waiting at most so long for one; once it has ended, also an unfinished last one.
  std::vector<std::string> lines(int milliseconds = 0);
  // Its exit status, or 128 + the signal that ended it; empty: it runs.
  std::optional<int> ended();
  void signal(int number);  // to it alone; nothing once it has ended

 private:
  pid_t pid_ = -1;
  int errors_ = -1;
  bool closed_ = false;  // its stderr
  std::string unread_;
  std::optional<int> status_;
};

}  // namespace lockstep
