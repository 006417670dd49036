// Leaves what repeats a difference between sampling and training: the weights as they are, and the file that names them (checkpoint/difference_case.h).
//   const auto file = leave_difference(stack, {.datum = datum, .logprobs = trained, .step = 3}, "runs/r/difference");
// One thread, the run's.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "runs/rl_stack.h"
#include "runs/trainer_port.h"

namespace lockstep {

struct FoundDifference {
  const PolicyDatum& datum;            // with the sampler's log-probabilities
  const std::vector<float>& logprobs;  // the trainer's, by row
  std::int64_t step = 1;               // of the run, from 1
  std::int32_t top_k = 0;              // of the sampling, as the next two
  float top_p = 1, min_p = 0;
};

// The folder gets `weights`, in fp32 (of an adapter its own; the model below stays where it is), and case.json, which is returned. Earlier ones are replaced.
// Errors: those of RlStack::export_model and write_case.
std::filesystem::path leave_difference(RlStack& stack, const FoundDifference& found, const std::filesystem::path& folder);
// The same for the end of the error that tells of the difference: "; ...", with the command that repeats it, or why nothing could be left. Never throws what
// leave_difference throws: the difference is to be told all the same.
std::string leave_and_tell(RlStack& stack, const FoundDifference& found, const std::filesystem::path& folder);

}  // namespace lockstep
