// One start of a run's processes: mpirun, what they say, how they end, and the signals that make them.
//   Attempt attempt(line); while (attempt.runs()) attempt.pass(50, now, 120); use(attempt.outcome(processes, now));
// Times are the caller's seconds. One thread.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "launch/child_process.h"
#include "launch/launch_word.h"

namespace lockstep {

class Attempt {
 public:
  explicit Attempt(const std::vector<std::string>& line) : mpirun_(line, {.stdout_is_ours = true}) {}

  bool runs() { return !mpirun_.ended(); }
  // Passes on what the processes write, waiting at most so long for it, and ends those that hang: `patience` seconds behind ask_to_save(), or a few behind a
  // loss that was told.
  void pass(int milliseconds, double now, double patience);
  // Process 0 saves and ends: mpirun passes a signal on to all processes, wherever they are, in a later pass().
  void ask_to_save(double now) {
    if (!asked_at_) asked_at_ = now;
  }
  bool asked() const { return asked_at_.has_value(); }

  enum class End {
    finished,     // process 0 ended well
    saved,        // it was asked to, and has
    lost,         // a process or a host
    failed,       // process 0 ended with an error of its own
    not_started,  // nobody has begun
  };
  struct Outcome {
    End end = End::not_started;
    int status = 0;         // process 0's exit code, or else mpirun's
    std::string lost = {};  // a sentence
  };
  // How it has ended; `processes` were started.
  Outcome outcome(int processes, double now);
  // It was told that one is lost, at this time.
  std::optional<double> lost_at() const { return lost_at_; }

 private:
  void listen(int milliseconds, double now);
  void hear(const LaunchWord& word, double now);

  ChildProcess mpirun_;
  bool begun_ = false, leader_begun_ = false, told_ = false;
  std::optional<LaunchWord> leader_;  // the last word of process 0
  std::string lost_;                  // as others told it
  std::optional<double> lost_at_, asked_at_, ended_at_;
};

}  // namespace lockstep
