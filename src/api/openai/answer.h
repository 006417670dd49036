// An answer before it has a wire format: deltas of choices, and a reducer that joins deltas into whole choices. A stream sends each delta, a whole
// answer the joined choices, so both have the same content. Plain values.
//   ChoiceDelta whole; whole.append(std::move(delta));
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "serving/serving.h"

namespace lockstep {

struct AnswerToken {
  std::int32_t id = -1;
  std::optional<float> logprob;  // of the model; the first of a prompt has none
  float sampling_logprob = 0;
  std::vector<TokenLogprob> top;
  std::int64_t offset = 0;                  // of its text, in characters
  bool of_prompt = false;                   // an echo
  std::vector<std::uint16_t> experts = {};  // as GeneratedToken's
  KeptTokens kept = {};                     // the same
  // How many token ids the answer has for it: its own, those of the likeliest tokens, and those of its kept set.
  std::size_t written() const { return 1 + top.size() + static_cast<std::size_t>(kept.count); }
};

// New text, tool calls and tokens of one choice.
struct ChoiceDelta {
  std::string reasoning, content;
  std::vector<ToolCallDelta> tool_calls;
  std::vector<AnswerToken> tokens;
  std::string finish;  // empty: it goes on

  bool says_nothing() const { return reasoning.empty() && content.empty() && tool_calls.empty() && tokens.empty() && finish.empty(); }
  // Tool calls of one index become one.
  void append(ChoiceDelta&& next);
};

// A notice in a stream that a choice is held, or was rolled back.
struct HoldNotice {
  std::string json;
  std::optional<std::vector<std::int32_t>> stands = {};  // of a roll-back: all tokens that the answer still has
  ChoiceDelta message = {};                              // of a roll-back: what of the answer's text is certain now, taken apart
};

// The fields of an answer around its choices.
struct AnswerHead {
  std::string id, model, profile;
  std::int64_t created = 0;
  std::uint64_t seed = 0, weights_version = 0;
  bool mixed_versions = false;
  std::string service_tier;        // under which it was made (api/openai/service_tier.h)
  std::string snapshot, identity;  // from which the weights came (serving/version_names.h); empty: from none
};

struct AnswerUsage {
  std::int64_t prompt = 0, cached = 0, completion = 0, reasoning = 0;  // tokens
  bool predicted = false;                                              // the request has a prediction (`prediction`, `speculation`):
  std::int64_t predicted_right = 0, predicted_wrong = 0;               // its tokens that were checked and were right, or wrong
  bool holds = false;                                                  // the answer may be held on the way:
  std::int64_t rolled_back = 0, put_in = 0;                            // tokens of `completion` rolled back; others put in, not counted there
  GenerationTimes times = {};                                          // of the choice that ended last
};

}  // namespace lockstep
