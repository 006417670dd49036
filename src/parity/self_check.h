// The self-test: does this machine give the published bits? A tiny random model (glm_moe_dsa, 4 layers) samples, takes one training step and samples
// again, for each instruction set of this machine and one or all threads; a hash of everything is compared with the one in
// this program.
//   for (const SelfTestRow& row : run_self_test()) if (!row.passed()) ...
// Needs no file. Used by one thread at a time; takes a second or so.
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
