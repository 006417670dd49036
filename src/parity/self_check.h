// The self-test: does this machine give the published bits? A tiny random model (glm_moe_dsa, 4 layers) samples, takes one training step and samples
// again, for each instruction set of this machine and one or all threads; a hash of everything is compared with the one in
// this program.
//   for (const SelfTestRow& row : run_self_test()) if (!row.passed()) ...
// Needs no file. Used by one thread at a time; takes a second or so.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

class Model;

struct SelfTestRow {
  std::string profile, isa;
  int threads = 0;
  std::string hash, published;
  bool passed() const { return hash == published; }
};

// The model that it runs, with every mechanism of the family; its weights are initial_weights(manifest, kSelfTestSeed, kSelfTestDeviation).
std::shared_ptr<const Model> self_test_model();
inline constexpr std::uint64_t kSelfTestSeed = 11;
inline constexpr double kSelfTestDeviation = 0.3;

// `threads`: beside 1, how many; 0: all processors.
std::vector<SelfTestRow> run_self_test(int threads = 0);

}  // namespace lockstep
