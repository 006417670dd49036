#include "runs/held_rates.h"

#include <algorithm>

#include "base/error.h"
#include "base/philox.h"
#include "numerics/elementary_double.h"

namespace lockstep {
namespace {
constexpr double kOfOneProblem = 0.03;  // of a rate: a running mean over some thirty problems
constexpr std::uint32_t kOften = 16;    // how much oftener a kind is drawn that is not held
}  // namespace

HeldRates::HeldRates(double most, std::vector<std::string> kinds, std::uint64_t seed) : most_(most), kinds_(std::move(kinds)), seed_(seed) {
  if (kinds_.empty()) fail(ErrorCode::invalid_argument, "hold_rate is {} of data without kinds, allowed is 0", most);
  rates_.assign(kinds_.size(), 0.0);
}

std::size_t HeldRates::lowest() const { return static_cast<std::size_t>(std::min_element(rates_.begin(), rates_.end()) - rates_.begin()); }
bool HeldRates::held(std::size_t kind) const { return rates_[kind] >= most_ && kind != lowest(); }

std::vector<std::size_t> HeldRates::draw(std::int64_t step, std::int64_t count) const {
  RandomSequence random(seed_, RandomStream::shuffle, static_cast<std::uint64_t>(step));
  std::uint32_t all = 0;
  for (std::size_t kind = 0; kind < kinds_.size(); ++kind) all += held(kind) ? 1 : kOften;
  std::vector<std::size_t> drawn = {lowest()};
  while (std::ssize(drawn) < count) {
    std::uint32_t place = random.below(all);
    std::size_t kind = 0;
    for (; place >= (held(kind) ? 1 : kOften); ++kind) place -= held(kind) ? 1 : kOften;
    drawn.push_back(kind);
  }
  return drawn;
}

void HeldRates::mask(SftProblems& batch) const {
  for (const SftProblem& problem : batch.problems)
    if (held(problem.kind))
      for (std::size_t s = problem.first; s < problem.first + problem.count; ++s)
        std::fill(batch.sequences[s].weights.begin(), batch.sequences[s].weights.end(), 0.0f);
}

void HeldRates::measure(const SftProblems& batch, const std::vector<std::vector<float>>& logprobs) {
  for (const SftProblem& problem : batch.problems) {
    if (!problem.measured) continue;
    double sum = 0;
    for (std::size_t s = problem.first; s < problem.first + problem.count; ++s)
      for (const std::size_t place : batch.answers[s]) sum += static_cast<double>(logprobs[s][place]);
    double& rate = rates_[problem.kind];
    rate += kOfOneProblem * (exp_double(sum) - rate);
  }
}

nlohmann::ordered_json HeldRates::rates() const {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (std::size_t kind = 0; kind < kinds_.size(); ++kind) json[kinds_[kind]] = rates_[kind];
  return json;
}

void HeldRates::restore(const nlohmann::ordered_json& rates) {
  if (!rates.is_object() || rates.size() != kinds_.size()) fail(ErrorCode::corrupt_file, "the checkpoint's rates are not of {}", fmt::join(kinds_, ", "));
  for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
    const auto found = rates.find(kinds_[kind]);
    if (found == rates.end() || !found->is_number()) fail(ErrorCode::corrupt_file, "the checkpoint has no rate of '{}'", kinds_[kind]);
    rates_[kind] = found->get<double>();
  }
}

}  // namespace lockstep
