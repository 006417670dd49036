#include "model/expert_shape.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {

std::string ExpertShape::fault(std::span<const std::int32_t> row) const {
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const std::span<const std::int32_t> chosen = row.subspan(static_cast<std::size_t>(layer * experts_a_token), static_cast<std::size_t>(experts_a_token));
    for (std::size_t j = 0; j < chosen.size(); ++j) {
      if (chosen[j] < 0 || chosen[j] >= experts) return fmt::format("names expert {} in sparse layer {}, allowed are 0 to {}", chosen[j], layer, experts - 1);
      if (std::find(chosen.begin(), chosen.begin() + static_cast<std::ptrdiff_t>(j), chosen[j]) != chosen.begin() + static_cast<std::ptrdiff_t>(j))
        return fmt::format("names expert {} twice in sparse layer {}, allowed is once", chosen[j], layer);
    }
  }
  return {};
}

}  // namespace lockstep
