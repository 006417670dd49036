// The grader of Countdown: is this text a correct answer?
//   countdown_correct(std::array{3, 7, 12}, 36, "(7-4)*12")
// Its own parser over exact rationals; only the given numbers are evaluated, so spelling a number, an operator or the surrounding text
// in an odd way gains nothing. Knows no model and no generator. Thread-safe (pure functions); takes any bytes; never throws for them.
#pragma once
#include <cstddef>
#include <span>
#include <string_view>

namespace lockstep {

inline constexpr std::size_t kCountdownMaxAnswerBytes = 64;
inline constexpr int kCountdownMaxDepth = 8;  // of parentheses

// True when `answer` is, from its first byte to its last, either
//   an expression of numbers, + - * / and parentheses with the usual precedence, whose exact value is the target
//     (results on the way may be any rational; a division by zero is wrong), or
//   steps "3+4=7,7*5=35": each a number, an operator, a number, '=' and the exact result, a whole number from 0 on; a step
//     uses up two of the numbers there are and adds its result; the last result is the target and all that is left;
// and every given number is used exactly once, written as it was given. No white space, no sign in front of a number, no
// leading zero, no other operator. Numbers and target are 0 to 1,000,000, at most 16 of them; else false.
bool countdown_correct(std::span<const int> numbers, int target, std::string_view answer);

}  // namespace lockstep
