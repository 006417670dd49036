#include "jobs/gate_company.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/philox.h"

namespace lockstep {
namespace {
constexpr std::uint32_t kCompanyRounds = 4;
constexpr std::array kCompanyTemperatures{0.5f, 1.0f, 1.5f};  // of those that are not greedy

std::uint32_t drawn_below(RandomSequence& random, std::size_t bound) { return random.below(static_cast<std::uint32_t>(bound)); }

// A prompt, whole or cut, and how it is answered.
SampleRequest drawn_request(SampleRequest request, bool greedy, RandomSequence& random) {
  if (request.prompt.size() > 1 && drawn_below(random, 2) == 0) request.prompt.resize(1 + drawn_below(random, request.prompt.size() - 1));
  request.max_tokens = 1 + static_cast<std::int32_t>(drawn_below(random, static_cast<std::size_t>(request.max_tokens)));
  request.temperature = greedy ? 0.0f : kCompanyTemperatures[drawn_below(random, kCompanyTemperatures.size())];
  request.seed = random.next();
  return request;
}

// Requests that are asked at once: some of those that were answered alone, each up to two times, and others.
struct GateCompany {
  std::vector<SampleRequest> requests;
  std::vector<std::size_t> places;  // among those that were answered alone; kStranger: it was not
};
constexpr std::size_t kStranger = ~std::size_t{0};

// `all`: of those that were answered alone none is missing.
GateCompany drawn_company(const std::vector<SampleRequest>& known, const std::vector<SampleRequest>& prompts, bool all, RandomSequence& random) {
  GateCompany company;
  const auto add = [&](SampleRequest request, std::size_t place) {
    company.requests.push_back(std::move(request));
    company.places.push_back(place);
  };
  for (std::size_t i = 0; i < known.size(); ++i)
    for (std::uint32_t times = all ? 1 + drawn_below(random, 2) : drawn_below(random, 3); times > 0; --times) add(known[i], i);
  for (std::uint32_t others = 1 + drawn_below(random, known.size()); others > 0; --others) {
    const SampleRequest& prompt = prompts[drawn_below(random, prompts.size())];
    const bool greedy = drawn_below(random, 2) == 0;
    add(drawn_request(prompt, greedy, random), kStranger);
  }
  for (std::size_t left = company.places.size(); left > 1; --left) {
    const std::size_t other = drawn_below(random, left);
    std::swap(company.requests[left - 1], company.requests[other]);
    std::swap(company.places[left - 1], company.places[other]);
  }
  return company;
}

// The first token in which two answers differ, or the number of those that both have where one ends otherwise; nothing: they are equal.
std::optional<std::size_t> first_difference(const SampleResult& a, const SampleResult& b) {
  const auto equal = [](float x, float y) { return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y); };
  const std::size_t both = std::min(a.tokens.size(), b.tokens.size());
  for (std::size_t i = 0; i < both; ++i)
    if (a.tokens[i] != b.tokens[i] || !equal(a.raw_logprobs[i], b.raw_logprobs[i]) || !equal(a.sampling_logprobs[i], b.sampling_logprobs[i])) return i;
  if (a.tokens.size() == b.tokens.size() && a.finish == b.finish) return std::nullopt;
  return both;
}
}  // namespace

void check_company(const GateSpec& spec, const Environment& environment, const GateSide& candidate, Sampler& sampler, GateCheck& check) {
  const std::vector<SampleRequest> prompts = gate_requests(spec, environment, candidate, spec.prompts());
  RandomSequence random(kGateSeed, RandomStream::fuzz);
  std::vector<SampleRequest> known;
  std::vector<SampleResult> alone;
  std::int64_t tokens = 0, comparisons = 0;
  for (std::size_t i = 0; i < prompts.size() && static_cast<std::int64_t>(i) < spec.company; ++i) {
    known.push_back(drawn_request(prompts[i], i % 2 == 1, random));
    alone.push_back(sampler.sample({known[i]}).front());
    if (alone[i].finish == SampleFinish::failed) fail(ErrorCode::numeric, "an answer of '{}' failed: {}", candidate.name, alone[i].error);
    tokens += static_cast<std::int64_t>(alone[i].tokens.size());
  }
  for (std::uint32_t round = 0; round < kCompanyRounds && check.why.empty(); ++round) {
    const GateCompany company = drawn_company(known, prompts, round == 0, random);
    const std::vector<SampleResult> together = sampler.sample(company.requests);
    for (std::size_t i = 0; i < together.size(); ++i) {
      if (company.places[i] == kStranger) continue;
      ++comparisons;
      const std::size_t place = company.places[i];
      const std::optional<std::size_t> token = first_difference(alone[place], together[i]);
      if (!token || !check.why.empty()) continue;
      check.why = fmt::format("prompt {} has other bits beside {} others than alone under '{}', from token {} of its answer at temperature {}", place + 1,
                              together.size() - 1, candidate.name, *token, known[place].temperature);
    }
  }
  check.figures = {{"prompts", known.size()}, {"rounds", kCompanyRounds}, {"comparisons", comparisons}, {"tokens", tokens}};
}

}  // namespace lockstep
