// A policy for lockbox that knows what its context window shows and nothing else, as a test double of the interface Sampler. Tests only.
#pragma once
#include "rl/rl_test_tools.h"

namespace lockstep {

// It reads the window's text: the task, then, in later windows, the summary, then digits and doors. `right` is the chance of each answer that is no
// summary; a wrong one is "0".
class LockboxPlayer : public FakeSampler {
 public:
  using FakeSampler::FakeSampler;
  std::vector<SampleResult> sample(const std::vector<SampleRequest>& asked) override {
    std::vector<SampleResult> results;
    calls.push_back(asked.size());
    for (const SampleRequest& r : asked) {
      requests.push_back(r);
      std::string answer = answer_of(tokenizer.decode(r.prompt, false));
      RandomSequence random(r.seed, RandomStream::sampling, r.prompt.size() * 1000 + static_cast<std::uint64_t>(r.sample_index));
      if (random.uniform() >= right && answer.size() == 1 && r.prompt.back() != tokenizer.encode("#", false)[0]) answer = wrong;
      SampleResult& result = results.emplace_back();
      result.tokens = tokenizer.encode(answer, false);
      result.tokens.push_back(kTestEnd);
      result.finish = SampleFinish::stop;
      if (std::ssize(result.tokens) > r.max_tokens) result.tokens.resize(static_cast<std::size_t>(r.max_tokens)), result.finish = SampleFinish::length;
      for (std::size_t i = 0; i < result.tokens.size(); ++i)
        result.sampling_logprobs.push_back(-0.5f - 0.01f * static_cast<float>(result.tokens[i]) - 0.001f * static_cast<float>(r.prompt.size() + i));
      result.raw_logprobs = result.sampling_logprobs;
      result.weights_version = version;
    }
    return results;
  }
  static std::string answer_of(const std::string& window) {
    static const std::string end = "<|eos|>";
    const std::size_t colon = window.find(':');
    std::string rest = window.substr(colon + 1);
    int sum = 0;
    const std::string first = rest.substr(0, rest.find(end));
    if (first.find_first_not_of("0123456789,") == std::string::npos) {  // a summary: its last digit
      sum = first.back() - '0';
      rest = rest.substr(first.size() + end.size());
    }
    if (rest.back() == '?') return std::string(1, window[2 * static_cast<std::size_t>(rest[rest.size() - 2] - 'A') + 1]);
    std::string sums;
    for (std::size_t at = 0; at < rest.size();) {  // the digits that observations begin with
      if (rest[at] >= '0' && rest[at] <= '9' && at + 1 < rest.size() && (rest[at + 1] == ',' || rest[at + 1] == '=')) {
        sum = (sum + rest[at] - '0') % 10;
        sums += (sums.empty() ? "" : ",") + std::to_string(sum);
      }
      const std::size_t next = rest.find(end, at);
      at = next == std::string::npos ? rest.size() : next + end.size();
    }
    return sums.empty() ? std::to_string(sum) : sums;
  }
  std::vector<std::size_t> calls;  // of how many requests each
};

}  // namespace lockstep
