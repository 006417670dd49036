// How a token's experts are written as integers, where a forward reports them or is given them: the experts of each MoE layer,
// layer after layer in the order of the model; within a layer ascending, as the router emits them (kernels/router/router.h).
//   const ExpertShape shape = model.facts().expert_shape(); shape.fault(row);   // "" or what is wrong
// Host data only.
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
