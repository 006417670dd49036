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
  // Who says nothing for so many seconds does not answer.
  HostQuestions(LaunchProgram program, double patience) : program_(std::move(program)), patience_(patience) {}
  // Nothing while it is being asked. Errors: those of ChildProcess.
  void ask(int host, const std::string& name, double now);
  // Those that were found out since the last call.
  std::vector<std::pair<int, bool>> answers(double now);
  bool open() const { return !asked_.empty(); }

 private:
  struct Asked {
    int host;
    double until;
    std::unique_ptr<ChildProcess> command;  // null: it answers
  };
  LaunchProgram program_;
  double patience_;
  std::vector<Asked> asked_;
};

}  // namespace lockstep
