// The game Lockbox: 24 doors in a row. Each shows its number and a symbol and opens with one of 4 keys; the task lists the key for every symbol.
// Behind each door is a digit, and the last question is the sum of the 24 digits modulo 10. A wrong key ends the game. Problems are seeded, in two
// disjoint splits; rl/lockbox_environment.h plays them. Pure functions.
//   LockboxProblem p = make_lockbox_problem(Split::train, seed, index); std::string task = lockbox_task(p);  // "A3B1C4D2E1F3G2H4:"
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "rl/environment.h"

namespace lockstep {

inline constexpr int kLockboxSymbols = 8, kLockboxKeys = 4, kLockboxDoors = 24;

struct LockboxProblem {
  std::array<int, kLockboxSymbols> keys{};   // that opens the symbol, from 1
  std::array<int, kLockboxDoors> symbols{};  // of the doors, from 0
  std::array<int, kLockboxDoors> digits{};   // behind them
  bool operator==(const LockboxProblem&) const = default;
};

// The same arguments give the same problem on every machine. Keys, symbols and digits are uniform over all that lie in the split: one problem in eight is
// held out, by its id.
LockboxProblem make_lockbox_problem(Split split, std::uint64_t seed, std::uint64_t index);
std::uint64_t lockbox_id(const LockboxProblem& problem);
Split lockbox_split(const LockboxProblem& problem);

// Which key opens which symbol.
std::string lockbox_task(const LockboxProblem& problem);
// What a closed door (from 0) shows; what is shown once it is open: its digit, and what is asked next.
std::string lockbox_door(const LockboxProblem& problem, int door);
std::string lockbox_opened(const LockboxProblem& problem, int door);
inline constexpr std::string_view kLockboxSummaryPrompt = "#";
// The right key to a door as an answer: a single digit.
std::string lockbox_key(const LockboxProblem& problem, int door);
int lockbox_sum(const LockboxProblem& problem);

// Whether the answer to the last question is right: digits separated by commas, of which the last is the sum modulo 10. Those before it are a
// calculation and are not checked.
bool lockbox_correct(const LockboxProblem& problem, std::string_view answer);

}  // namespace lockstep
