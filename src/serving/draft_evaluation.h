// Measures what speculative decoding gains: answers given prompts with and without drafts, and compares every token and log-probability. Any thread
// but the services'.
//   const DraftEvaluation e = evaluate_drafts(without, with, requests, 32); e.accepted_length()
#pragma once
#include <vector>

#include "base/stop_token.h"
#include "serving/serving.h"

namespace lockstep {

struct DraftEvaluation {
  std::int64_t prompts = 0, tokens = 0;  // of the answers
  std::int64_t different = 0;            // tokens that differ, or whose log-probability has other bits
  DraftCounters drafts;
  std::int64_t forwards_without = 0, forwards_with = 0;
  double seconds_without = 0, seconds_with = 0;

  // Mean tokens of a forward with a draft, the model's own included. 0: there was no draft.
  double accepted_length() const;
  // The share of drafts whose token `place` (from 0) was accepted, and all before it.
  double accepted_share(std::size_t place) const;
};

// Tokens in which two answers of one request differ, by id or by a bit of a log-probability; those that one has more of are different.
std::int64_t different_tokens(const Generation& a, const Generation& b);

// `with` speculates by its options, `without` never; at most `at_once` requests are in flight. Errors: those of generate(); numeric when an answer
// ends with an error; cancelled when stopped.
DraftEvaluation evaluate_drafts(GenerationService& without, GenerationService& with, const std::vector<Request>& requests, std::int64_t at_once,
                                const StopToken& stop = {});

}  // namespace lockstep
