// `lockstep doctor --ranks`: the ranks of a run before it begins, over threads or the processes that mpirun started (parity/rank_check.h).
//   if (!asked.ranks.empty()) return doctor_of_ranks(asked);
// One thread.
#pragma once
#include <cstdint>
#include <string>

#include "trained/led_model.h"

namespace lockstep {

struct RanksAsked {
  std::string ranks;  // a layout; auto: a rank a process, or two threads
  ProcessSettings processes;
  std::string isa = "auto";
  std::string model;         // empty: none is compared
  std::int64_t threads = 0;  // 0: all processors
  bool quick = false, json = false;
};

// Prints what was found, in process 0. Returns the exit code.
int doctor_of_ranks(const RanksAsked& asked);

}  // namespace lockstep
