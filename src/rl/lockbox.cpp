#include "rl/lockbox.h"

#include "base/error.h"
#include "base/hash.h"
#include "base/philox.h"

namespace lockstep {
namespace {
constexpr std::uint64_t kLockboxSplitSeed = 0x4C6F636B626F78;  // "Lockbox": fixed for ever, or the splits would leak
constexpr std::uint64_t kLockboxHeldOutShare = 8;

char lockbox_symbol(int number) { return static_cast<char>('A' + number); }
bool lockbox_digit(char c) { return c >= '0' && c <= '9'; }
}  // namespace

std::uint64_t lockbox_id(const LockboxProblem& problem) {
  std::string key = lockbox_task(problem);
  for (std::size_t i = 0; i < kLockboxDoors; ++i) key += fmt::format("{}{}", lockbox_symbol(problem.symbols[i]), problem.digits[i]);
  return xxh3(key.data(), key.size(), kLockboxSplitSeed);
}

Split lockbox_split(const LockboxProblem& problem) { return lockbox_id(problem) % kLockboxHeldOutShare == 0 ? Split::held_out : Split::train; }

LockboxProblem make_lockbox_problem(Split split, std::uint64_t seed, std::uint64_t index) {
  RandomSequence random(seed, RandomStream::environment, index);
  for (;;) {
    LockboxProblem problem;
    for (int& key : problem.keys) key = 1 + static_cast<int>(random.below(kLockboxKeys));
    for (int& door : problem.symbols) door = static_cast<int>(random.below(kLockboxSymbols));
    for (int& behind : problem.digits) behind = static_cast<int>(random.below(10));
    if (lockbox_split(problem) == split) return problem;
  }
}

std::string lockbox_task(const LockboxProblem& problem) {
  std::string text;
  for (int i = 0; i < kLockboxSymbols; ++i) text += fmt::format("{}{}", lockbox_symbol(i), problem.keys[static_cast<std::size_t>(i)]);
  return text + ":";
}

std::string lockbox_door(const LockboxProblem& problem, int door) {
  return fmt::format("{}{}?", door + 1, lockbox_symbol(problem.symbols[static_cast<std::size_t>(door)]));
}

std::string lockbox_opened(const LockboxProblem& problem, int door) {
  const std::string behind = fmt::format("{}", problem.digits[static_cast<std::size_t>(door)]);
  return door + 1 < kLockboxDoors ? behind + "," + lockbox_door(problem, door + 1) : behind + "=";
}

std::string lockbox_key(const LockboxProblem& problem, int door) {
  return fmt::format("{}", problem.keys[static_cast<std::size_t>(problem.symbols[static_cast<std::size_t>(door)])]);
}

int lockbox_sum(const LockboxProblem& problem) {
  int sum = 0;
  for (const int behind : problem.digits) sum += behind;
  return sum % 10;
}

bool lockbox_correct(const LockboxProblem& problem, std::string_view answer) {
  if (answer.size() % 2 == 0) return false;
  for (std::size_t i = 0; i < answer.size(); ++i)
    if (i % 2 == 0 ? !lockbox_digit(answer[i]) : answer[i] != ',') return false;
  return answer.back() - '0' == lockbox_sum(problem);
}

}  // namespace lockstep
