// Answers that wait on the way: where an answer is held, what whoever asked is told there, and how it goes on (serving/held_completion.h). Knows no
// engine and no wire. Plain values.
//   HoldOrder order{.every = 8, .strings = {"\n"}};  HoldAction back{.kind = HoldAction::Kind::roll_back, .position = 3};
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// Positions count the tokens of the answer: 0 stands before its first one.
struct HoldOrder {
  std::int64_t every = 0;            // at each multiple of so many tokens; 0: not by their number
  std::vector<std::string> strings;  // behind the token that makes one of them whole; found in the tokens' own bytes
  bool any() const { return every > 0 || !strings.empty(); }

  static constexpr std::size_t kMostStrings = 16, kLongestString = 1000;
  static constexpr std::int64_t kMostRollBacks = 1024;  // of an answer
};

// Where an answer is held.
struct Hold {
  std::int64_t number = 0;           // which of this answer's, from 1
  std::int64_t position = 0;         // tokens of the answer as it stands, with those that were put in
  std::int32_t attempt = 0;          // that its next token is drawn under
  std::string found;                 // the string that holds it; empty: the number of tokens does
  std::vector<std::int32_t> tokens;  // of the answer as it stands
};

// How it goes on.
struct HoldAction {
  enum class Kind { go_on, stop, roll_back };
  Kind kind = Kind::go_on;
  // Of roll_back: so many tokens of the answer are kept, and these are put in behind them, or those of a text, which is encoded by itself. What comes
  // then is drawn under the next attempt.
  std::int64_t position = 0;
  std::vector<std::int32_t> tokens = {};
  std::string text = {};
};

// What came of an action.
struct HoldOutcome {
  HoldAction::Kind kind = HoldAction::Kind::go_on;
  std::int64_t position = 0;
  std::int32_t attempt = 0;
  std::int64_t rolled_back = 0;      // tokens that are not in the answer any more
  std::vector<std::int32_t> put_in;  // tokens
  std::vector<std::int32_t> tokens;  // of roll_back: of the answer as it stands
  std::string text;                  // of roll_back: all of the answer's text that is certain; what comes stands behind it
};

}  // namespace lockstep
