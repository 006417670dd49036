// Trains each kind of problem only up to a success rate. Example: at 0.45, problems of a kind whose reference answer has a probability of 0.45 or
// more on average are measured but not trained, until it falls below. So one run can teach easy and hard tasks, and masters none of them completely.
//   HeldRates held(0.45, source.kinds(), seed);
//   SftProblems batch = source.problems_of(step, held.draw(step, 32)); held.mask(batch); ... held.measure(batch, logprobs);
// The probability is that of the whole reference, all turns and windows: for a task with one right answer, how often sampling at temperature 1 would
// write it. A kind's rate is a running mean over its problems before they are trained. Draws are functions of seed, step and rates; rates are
// computed in double without libm, so every machine draws the same. One thread.
#pragma once
#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "runs/sft_data.h"

namespace lockstep {

class HeldRates {
 public:
  // Error invalid_argument without kinds.
  HeldRates(double most, std::vector<std::string> kinds, std::uint64_t seed);

  // Draws the kinds of a step's `count` problems; kinds at the limit are a sixteenth as likely as others. The first is the kind with the lowest rate.
  std::vector<std::size_t> draw(std::int64_t step, std::int64_t count) const;
  // Sets the weights of problems of kinds at the limit to 0. Never the kind with the lowest rate, so that every batch trains something.
  void mask(SftProblems& batch) const;
  // `logprobs`: of the batch's targets, per sequence.
  void measure(const SftProblems& batch, const std::vector<std::vector<float>>& logprobs);

  nlohmann::ordered_json rates() const;  // {"KIND": RATE}
  // Error corrupt_file when the kinds differ.
  void restore(const nlohmann::ordered_json& rates);

 private:
  bool held(std::size_t kind) const;
  std::size_t lowest() const;
  double most_;
  std::vector<std::string> kinds_;
  std::uint64_t seed_;
  std::vector<double> rates_;
};

}  // namespace lockstep
