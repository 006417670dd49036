// What a started process tells the launcher that started it: that it has begun, and how it ended and whom it missed. A line on stderr, which mpirun brings
// from any host, written only where the launcher has set a variable of the environment. (mpirun's own exit status is 0 when a process was killed and it may
// go on without.)
//   say_launch_word({.ended = true, .status = 1, .lost = "process 1 (host b, pid 7) ended without a word"});   // the process
//   if (const auto word = read_launch_word(line)) ...                                                          // the launcher
// Any thread.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

inline constexpr char kLaunchVariable[] = "LOCKSTEP_LAUNCH";  // 1: there is a launcher that reads

struct LaunchWord {
  int process = 0;
  bool ended = false;  // else: it has begun
  int status = 0;      // the program's exit code
  std::string lost = {};  // the process that it missed (parallel/process_name.h), in a sentence; empty: none
};

std::string launch_line(const LaunchWord& word);
std::optional<LaunchWord> read_launch_word(std::string_view line);
bool has_launcher();  // this process
// Of this process, whose number Open MPI says; nothing without a launcher.
void say_launch_word(LaunchWord word);

}  // namespace lockstep
