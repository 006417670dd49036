// The experts of a token as a row of integers, as a forward reports them or is given them: the chosen experts of each MoE layer, layer after layer,
// ascending within a layer (the router's order, kernels/router/router.h). Host data only.
//   const ExpertShape shape = model.facts().expert_shape(); shape.fault(row);   // "" or what is wrong
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

// Fills the whole row of a token that the model itself routes.
inline constexpr std::int32_t kOwnExperts = -1;

struct ExpertShape {
  std::int64_t layers = 0, experts_a_token = 0, experts = 0;  // sparse layers; 0: the model has no experts

  bool operator==(const ExpertShape&) const = default;
  std::int64_t row() const { return layers * experts_a_token; }  // numbers per token
  // What is wrong with a token's experts, in any order within their layers; empty: nothing. `row` has row() numbers.
  std::string fault(std::span<const std::int32_t> row) const;
};

}  // namespace lockstep
