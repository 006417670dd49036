// How the experts of a token stand as plain numbers, where they leave a forward or are given to one: the experts of each sparse layer,
// one layer after another in the order of the model; in a layer ascending, as the router chooses them (kernels/router/router.h).
// Host data only.
//   const ExpertShape shape = model.expert_shape(); shape.fault(row);   // "" or what is wrong
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

// Of a token that the model itself routes, where others are given: in all its places.
inline constexpr std::int32_t kOwnExperts = -1;

struct ExpertShape {
  std::int64_t layers = 0, experts_a_token = 0, experts = 0;  // sparse layers; 0: the model has no experts

  bool operator==(const ExpertShape&) const = default;
  std::int64_t row() const { return layers * experts_a_token; }  // numbers a token
  // What is wrong with a token's experts, in whatever order in their layers; empty: nothing. `row` has row() numbers.
  std::string fault(std::span<const std::int32_t> row) const;
};

}  // namespace lockstep
