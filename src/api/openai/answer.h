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
  // Token ids that are written for it: its own, the likeliest ones', those of its kept set.
  std::size_t written() const { return 1 + top.size() + static_cast<std::size_t>(kept.count); }
};

// What one choice gained.
struct ChoiceDelta {
  std::string reasoning, content;
  std::vector<ToolCallDelta> tool_calls;
  std::vector<AnswerToken> tokens;
  std::string finish;  // empty: it goes on

  bool says_nothing() const { return reasoning.empty() && content.empty() && tool_calls.empty() && tokens.empty() && finish.empty(); }
  // Tool calls of one index become one.
  void append(ChoiceDelta&& next);
};

// That a choice is held, or was rolled back, as a stream tells it.
struct HoldNotice {
  std::string json;
  std::optional<std::vector<std::int32_t>> stands = {};  // of a roll-back: all tokens of the answer that is left
};

// What stands around the choices.
struct AnswerHead {
  std::string id, model, profile;
  std::int64_t created = 0;
  std::uint64_t seed = 0, weights_version = 0;
  bool mixed_versions = false;
  std::string service_tier;        // that it was made under (api/openai/service_tier.h)
  std::string snapshot, identity;  // that the weights came from (serving/version_names.h); empty: from none
};

struct AnswerUsage {
  std::int64_t prompt = 0, cached = 0, completion = 0, reasoning = 0;  // tokens
  bool predicted = false;                                              // the request said what the answer may be: of its tokens,
  std::int64_t predicted_right = 0, predicted_wrong = 0;               // those that were checked
  bool holds = false;                                                  // it may be held on the way: tokens of completion that were rolled back, and
  std::int64_t rolled_back = 0, put_in = 0;                            // others that were put in, which are not of completion
  GenerationTimes times = {};                                          // of the choice that ended last
};

}  // namespace lockstep
