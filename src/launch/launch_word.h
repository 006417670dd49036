// What a started process tells the launcher that started it: that it has begun, and how it ended and whom it missed. A line on stderr, which mpirun brings
// from any host, written only where the launcher has set a variable of the environment. (mpirun's own exit status is 0 when a process was killed and it may
// go on without.)
//   say_begun(); const int status = run(); say_ended(status);          // the process
//   if (const auto word = read_launch_word(line)) use(word->status);   // the launcher
// Any thread.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

inline constexpr char kLaunchVariable[] = "LOCKSTEP_LAUNCH";  // there is a launcher that reads; the number of its start, from 1

struct LaunchWord {
  int process = 0;
  bool ended = false;     // else: it has begun
  int status = 0;         // the program's exit code
  std::string lost = {};  // the process that it missed (parallel/process_name.h), in a sentence; empty: none
};

std::string launch_line(const LaunchWord& word);
std::optional<LaunchWord> read_launch_word(std::string_view line);
bool has_launcher();  // this process
int launch_start();   // the number of the start that it belongs to; 0: no launcher started it
// Of this process, whose number Open MPI says; nothing without a launcher. With the end goes whom it missed (lost_process()).
void say_begun();
void say_ended(int status);

}  // namespace lockstep
