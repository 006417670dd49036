// The referee of Countdown: is this text a correct answer? Its own parser over exact rationals; nothing is evaluated that is
// not one of the given numbers, so nothing can be gamed by how a number, an operator or the text around it is written.
// Knows no model and no generator. Thread-safe (pure functions); takes any bytes; never throws for them.
//   countdown_correct(std::array{3, 7, 12}, 36, "(7-4)*12")
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
