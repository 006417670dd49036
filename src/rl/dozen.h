// Twelve short tasks on digits and small numbers, each answered in one line: reverse, sort, add, subtract, maximum, count, parity, shift,
// deduplicate, interleave, compare, remainder. A task is a row of dozen.cpp, and has exactly one right answer. Pure functions.
//   const DozenProblem p = make_dozen_problem("reverse", Split::train, seed, index);  // p.prompt "reverse 4 7 1:", p.answer "1 7 4"
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rl/environment.h"

namespace lockstep {

struct DozenProblem {
  std::string prompt, answer;
};

std::vector<std::string> dozen_tasks();

// The same arguments give the same problem on every machine. One problem in eight is held out, by its id. Error invalid_argument for an unknown task.
DozenProblem make_dozen_problem(std::string_view task, Split split, std::uint64_t seed, std::uint64_t index);
std::uint64_t dozen_id(std::string_view prompt);
Split dozen_split(std::string_view prompt);

// The right answer to a prompt, computed from its text alone; empty for a text that is no prompt of these tasks.
std::string dozen_answer(std::string_view prompt);

}  // namespace lockstep
