// What tests of the engine need: a runtime with random weights of a golden's architecture, random requests, comparison
// of bits. Tests only.
#pragma once
#include <gtest/gtest.h>

#include <bit>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/philox.h"
#include "engine/engine.h"

namespace lockstep {

inline Json golden_config(const std::string& name) {
  return Json::parse(std::ifstream(std::string(LOCKSTEP_SOURCE_DIR) + "/tests/golden/glm_moe_dsa/" + name + "/config.json"));
}

// A backend with a model and its weights.
struct Plant {
  Runtime runtime;
  WeightImages images;
  std::shared_ptr<const WeightSet> weights;

  explicit Plant(const std::string& config = "sharing", const std::string& profile = "cpu-bf16w", const BackendOptions& backend = {.threads = 2},
                 std::int64_t positions = 128, std::uint64_t seed = 7)
      : runtime(backend, make_model(golden_config(config)), profile_by_name(profile), positions),
        images(initial_weights(runtime.model->manifest(), seed, 0.25)),
        weights(make(1)) {}
  std::shared_ptr<const WeightSet> make(std::uint64_t version) {
    return make_weight_set(runtime.backend, runtime.model->manifest(), images, runtime.profile, version);
  }
};

inline std::vector<std::int32_t> random_tokens(RandomSequence& draws, std::int64_t n, std::int64_t vocabulary) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(n));
  for (std::int32_t& t : tokens) t = static_cast<std::int32_t>(draws.below(static_cast<std::uint32_t>(vocabulary)));
  return tokens;
}

// Requests of all kinds; many begin with the same text.
inline std::vector<Request> random_requests(int count, std::uint64_t seed, std::int64_t vocabulary, std::int64_t longest_prompt = 40) {
  RandomSequence draws(seed, RandomStream::fuzz);
  const std::vector<std::int32_t> common = random_tokens(draws, longest_prompt, vocabulary);
  std::vector<Request> requests(static_cast<std::size_t>(count));
  for (Request& r : requests) {
    const auto length = 1 + draws.below(static_cast<std::uint32_t>(longest_prompt));
    r.prompt = random_tokens(draws, length, vocabulary);
    if (draws.below(2)) std::copy_n(common.begin(), draws.below(length + 1), r.prompt.begin());
    SamplingParameters& s = r.sampling;
    constexpr float kTemperatures[] = {0, 0.7f, 1, 1, 1.5f};
    s.temperature = kTemperatures[draws.below(5)];
    if (draws.below(3) == 0) s.top_k = 1 + static_cast<std::int32_t>(draws.below(20));
    if (draws.below(3) == 0) s.top_p = 0.9f;
    s.seed = draws.next() | std::uint64_t{draws.next()} << 32;
    r.experts = s.seed % 2 == 0;
    r.prefix_owner = s.seed >> 7 & 1;
    s.sample_index = static_cast<std::int32_t>(draws.below(4));
    s.max_tokens = 1 + static_cast<std::int32_t>(draws.below(20));
    if (draws.below(4) == 0) s.stop_tokens = random_tokens(draws, 5, vocabulary);
    r.prompt_logprobs = draws.below(4) == 0;
    if (!r.prompt_logprobs) continue;
    r.prompt_draws = s.sample_index;
    r.prompt_targets_per_row = s.sample_index % 3;
    const std::size_t targets = (r.prompt.size() - 1) * static_cast<std::size_t>(r.prompt_targets_per_row);
    for (std::size_t i = 0; i < targets; ++i) r.prompt_targets.push_back(static_cast<std::int32_t>(i * 7 % static_cast<std::size_t>(vocabulary + 1)) - 1);
  }
  return requests;
}

inline std::vector<std::uint32_t> bits_of(const Generation& g) {
  std::vector<std::uint32_t> bits{static_cast<std::uint32_t>(g.finish)};
  for (const GeneratedToken& t : g.tokens)
    bits.insert(bits.end(), {static_cast<std::uint32_t>(t.id), std::bit_cast<std::uint32_t>(t.raw_logprob), std::bit_cast<std::uint32_t>(t.sampling_logprob)});
  for (float x : g.prompt_logprobs) bits.push_back(std::bit_cast<std::uint32_t>(x));
  const auto add_top = [&](const std::vector<TokenLogprob>& top) {
    for (const TokenLogprob& t : top) bits.insert(bits.end(), {static_cast<std::uint32_t>(t.id), std::bit_cast<std::uint32_t>(t.logprob)});
  };
  for (const GeneratedToken& t : g.tokens) add_top(t.top);
  for (const std::vector<TokenLogprob>& top : g.prompt_top_logprobs) add_top(top);
  for (float x : g.prompt_target_logprobs) bits.push_back(std::bit_cast<std::uint32_t>(x));
  add_top(g.prompt_draws);
  for (const GeneratedToken& t : g.tokens) bits.insert(bits.end(), t.experts.begin(), t.experts.end());
  for (const std::vector<std::uint16_t>& row : g.prompt_experts) bits.insert(bits.end(), row.begin(), row.end());
  return bits;
}

inline std::vector<std::vector<std::uint32_t>> bits_of(const std::vector<Generation>& generations) {
  std::vector<std::vector<std::uint32_t>> bits;
  for (const Generation& g : generations) bits.push_back(bits_of(g));
  return bits;
}

// How many values have other bits; sizes count too.
inline std::size_t different_bits(const std::vector<float>& a, const std::vector<float>& b) {
  std::size_t different = a.size() > b.size() ? a.size() - b.size() : b.size() - a.size();
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) different += std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i]);
  return different;
}

// Log-probabilities of tokens[1..]. Error numeric where the request fails.
inline std::vector<float> prompt_scores(Engine& engine, const std::vector<std::int32_t>& tokens, std::shared_ptr<const WeightSet> weights = nullptr) {
  Generation g = engine.generate({{.prompt = tokens, .sampling = {.max_tokens = 0}, .prompt_logprobs = true, .weights = std::move(weights)}})[0];
  if (g.finish == FinishReason::error) fail(ErrorCode::numeric, "{}", g.error);
  return g.prompt_logprobs;
}

}  // namespace lockstep
