// Requests with everything that bears on sampling: penalties, biases, constraints. Tests only.
#pragma once
#include <set>

#include "engine/engine_test_tools.h"

namespace lockstep {

// Allows a few tokens that are a function of those accepted before, and counts how it is called.
class HashConstraint : public TokenConstraint {
 public:
  HashConstraint(std::uint64_t seed, std::int64_t vocabulary) : state_(seed), vocabulary_(vocabulary) {}
  void allowed(std::span<std::uint32_t> words) override {
    EXPECT_TRUE(asked_.insert(state_).second || taken_back_) << "asked twice for one token";
    EXPECT_EQ(static_cast<std::int64_t>(words.size()), (vocabulary_ + 31) / 32);
    for (std::uint32_t w : words) EXPECT_EQ(w, 0u);
    for (const std::int32_t token : tokens_allowed()) words[static_cast<std::size_t>(token / 32)] |= 1u << token % 32;
  }
  void accept(std::int32_t token) override {
    EXPECT_TRUE(asked_.contains(state_) || accepted < replayed);
    EXPECT_TRUE(tokens_allowed().contains(token));
    ++accepted;
    states_.push_back(state_);
    state_ = state_ * 6364136223846793005u + static_cast<std::uint64_t>(token) + 1;
  }
  void truncate(std::int64_t count) override {
    ASSERT_LE(count, accepted);
    if (count < accepted) state_ = states_[static_cast<std::size_t>(count)];
    accepted = count;
    states_.resize(static_cast<std::size_t>(count));
    taken_back_ = true;  // from now on it may be asked again
  }
  std::int64_t accepted = 0;
  std::int64_t replayed = 0;  // so many are accepted first, and not asked for: Request::said

 private:
  std::set<std::int32_t> tokens_allowed() const {
    RandomSequence draws(state_, RandomStream::fuzz);
    std::set<std::int32_t> allowed;
    const std::uint32_t count = draws.below(3) == 0 ? 1 : 1 + draws.below(static_cast<std::uint32_t>(vocabulary_));
    for (std::uint32_t i = 0; i < count; ++i) allowed.insert(static_cast<std::int32_t>(draws.below(static_cast<std::uint32_t>(vocabulary_))));
    return allowed;
  }

  std::uint64_t state_;
  std::vector<std::uint64_t> states_;  // before each
  std::int64_t vocabulary_;
  std::set<std::uint64_t> asked_;  // states
  bool taken_back_ = false;
};

// Requests with everything; `constrain` gives them constraints of their own for one run.
inline std::vector<Request> rich_requests(int count, std::uint64_t seed, std::int64_t vocabulary) {
  std::vector<Request> requests = random_requests(count, seed, vocabulary);
  RandomSequence draws(seed, RandomStream::fuzz, 3);
  for (Request& r : requests) {
    SamplingParameters& s = r.sampling;
    if (draws.below(3) == 0) s.min_p = static_cast<float>(draws.uniform() * 0.5);
    if (draws.below(3) == 0) s.repetition_penalty = static_cast<float>(0.5 + draws.uniform() * 1.5);
    if (draws.below(3) == 0) s.presence_penalty = static_cast<float>(draws.uniform() * 4 - 2);
    if (draws.below(3) == 0) s.frequency_penalty = static_cast<float>(draws.uniform() * 4 - 2);
    if (draws.below(3) == 0)
      for (std::int32_t token = 0; token < vocabulary; token += 1 + static_cast<std::int32_t>(draws.below(30)))
        s.logit_bias.push_back({token, static_cast<float>(draws.uniform() * 10 - 5)});
    if (draws.below(2)) s.top_logprobs = 1 + static_cast<std::int32_t>(draws.below(20));
  }
  return requests;
}
inline std::vector<Request> constrained(std::vector<Request> requests, std::int64_t vocabulary) {
  for (std::size_t i = 0; i < requests.size(); i += 2) requests[i].sampling.constraint = std::make_shared<HashConstraint>(i, vocabulary);
  return requests;
}

}  // namespace lockstep
