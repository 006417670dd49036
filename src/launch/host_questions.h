// Asks hosts whether they answer, several at once and beside other work: a command is started there by the remote shell that starts processes. This machine
// answers always.
//   HostQuestions questions(program, 6); questions.ask(1, "b", now); for (const auto& [host, answers] : questions.answers(now)) ...
// Times are the caller's seconds. One thread.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "launch/child_process.h"
#include "launch/mpirun_line.h"

namespace lockstep {

class HostQuestions {
 public:
  // A host whose command has not ended after `patience` seconds counts as one that does not answer.
  HostQuestions(LaunchProgram program, double patience) : program_(std::move(program)), patience_(patience) {}
  // Starts the command on a host; does nothing while that host's last one runs. `host`: the number by which answers() names it. Errors: those of ChildProcess.
  void ask(int host, const std::string& name, double now);
  // Hosts whose command has ended, or ran out of time, since the last call, each with whether it answered (the command's exit status is 0).
  std::vector<std::pair<int, bool>> answers(double now);
  bool open() const { return !asked_.empty(); }

 private:
  struct Asked {
    int host;
    double until;                           // the time at which patience ends
    std::unique_ptr<ChildProcess> command;  // null: this machine, which needs no command and answers
  };
  LaunchProgram program_;
  double patience_;
  std::vector<Asked> asked_;
};

}  // namespace lockstep
