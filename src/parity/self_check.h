// Does this machine give the published bits? A tiny random model (glm_moe_dsa, 4 layers) samples, learns one step and samples
// again, for each instruction set of this machine and one or all threads; the hash of everything is held against the one in
// this program. Needs no file. Used by one thread at a time; a second or so.
//   for (const SelfTestRow& row : run_self_test()) if (!row.passed()) ...
#pragma once
#include <string>
#include <vector>

namespace lockstep {

struct SelfTestRow {
  std::string profile, isa;
  int threads = 0;
  std::string hash, published;
  bool passed() const { return hash == published; }
};

// `threads`: beside 1, how many; 0: all processors.
std::vector<SelfTestRow> run_self_test(int threads = 0);

}  // namespace lockstep
