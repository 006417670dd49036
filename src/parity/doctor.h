// `lockstep doctor`: turns facts about the machine into findings, each with the command that fixes it.
//   for (const Finding& finding : judge(facts, bandwidth, rows, folder)) ...
// Judges facts (parity/machine.h) and the self-test; measures nothing itself. Any thread.
#pragma once
#include <string>
#include <vector>

#include "parity/machine.h"
#include "parity/self_check.h"

namespace lockstep {

struct Finding {
  enum class Level { good, note, warning, problem };  // problem: this machine cannot give the promised bits
  Level level = Level::good;
  std::string subject;  // "processor", "memory", "bits", ...
  std::string text;
  std::string mend;  // a command or a setting; empty where there is nothing to do
};
std::string finding_level_name(Finding::Level level);  // "good", "note", "warning", "problem"

// `bandwidth` in GB/s, 0: not measured. `free_bytes`: of the disk that runs are written to, negative: unknown.
std::vector<Finding> judge(const MachineFacts& facts, double bandwidth, const std::vector<SelfTestRow>& self_test, std::int64_t free_bytes);

}  // namespace lockstep
