// Holds kinds of problems at a rate: a kind whose reference answers the model already writes with that probability is measured and not trained, until
// it is less. So one run teaches easy and hard tasks, and none of them whole.
//   HeldRates held(0.45, source.kinds(), seed);
//   SftProblems batch = source.problems_of(step, held.draw(step, 32)); held.mask(batch); ... held.measure(batch, logprobs);
// The probability is that of the whole reference, every turn and window of it: of a task with one right answer, how often sampling at temperature 1
// writes it. A kind's rate is a running mean over its problems, before they are trained. Draws are functions of seed, step and rates; rates are
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
  // Error invalid_argument where there are no kinds.
  HeldRates(double most, std::vector<std::string> kinds, std::uint64_t seed);

  // Kinds of the `count` problems of a step: those that are held a sixteenth as often as the others. The first is the one of the lowest rate.
  std::vector<std::size_t> draw(std::int64_t step, std::int64_t count) const;
  // No weight for the problems of kinds that are held. The kind of the lowest rate is not, so that a batch always teaches something.
  void mask(SftProblems& batch) const;
  // `logprobs`: of the batch's targets, per sequence.
  void measure(const SftProblems& batch, const std::vector<std::vector<float>>& logprobs);

  nlohmann::ordered_json rates() const;  // {"KIND": RATE}
  // Error corrupt_file for other kinds.
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
