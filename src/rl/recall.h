// Looking up in a long text. A document of words has records among filler, each a key with its value, and then asks for keys:
// " ba de Bal17 mi Kon03 fo? Kon Bal:" is answered by " Kon03 Bal17". Its length in words is free (a key and its value are two), up to a million. Four kinds:
// `needle` has one record; `keys` has many, and asks for one; `queries` asks for several in any order; `last` writes keys again with other values, asks for
// several too, and the last value counts. Pure functions.
//   const RecallProblem p = make_recall_problem("last", 4096, Split::train, seed, index);
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rl/environment.h"

namespace lockstep {

inline constexpr std::int64_t kRecallLeastLength = 16, kRecallMostLength = 1'048'448;  // with questions and answers 1,048,576 tokens at most
inline constexpr std::int64_t kRecallMostRecords = 256, kRecallMostQueries = 32;

struct RecallProblem {
  std::string prompt, answer;
};

std::vector<std::string> recall_kinds();
// All words that a text may have: 256 keys (with the blank before them), 100 values, 32 filler words (with the blank).
std::vector<std::string> recall_keys(), recall_values(), recall_filler();

// Whether problems of a kind may have more than one question.
bool recall_asks_several(std::string_view kind);
// The same arguments give the same problem on every machine. One problem in eight is held out, by its id. `asked`: questions at most, of kinds that ask
// several; never more than the text has keys. Error invalid_argument for an unknown kind, and for a length or a number of questions that is not allowed.
RecallProblem make_recall_problem(std::string_view kind, std::int64_t length, Split split, std::uint64_t seed, std::uint64_t index,
                                  std::int64_t asked = kRecallMostQueries);
std::uint64_t recall_id(std::string_view prompt);
Split recall_split(std::string_view prompt);

// The right answer to a prompt, computed from its text alone; empty for a text that is no prompt of this task.
std::string recall_answer(std::string_view prompt);
// The share of the questions that a completion answers right: its i-th answer must be the i-th question's key and value. 0 for a completion that is not a list
// of answers, or is longer than the right one.
double recall_share(std::string_view right_answer, std::string_view completion);

}  // namespace lockstep
