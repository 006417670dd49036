#include "model/idle_ranks.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/context_pieces.h"
#include "numerics/form.h"

namespace lockstep {

std::vector<std::string> idle_ranks(const RankLayout& layout, const Model& model, std::int64_t positions) {
  std::vector<std::string> told;
  const bool experts = model.facts().expert_count > 0;
  if (layout.pp > model.segments())
    told.push_back(fmt::format("pp={} are more stages than the model has segments, {}: the last stages do nothing", layout.pp, model.segments()));
  if (layout.ep > 1 && !experts && !layout.deals_rows())
    told.push_back(fmt::format("ep={} deals out experts, and the model has none: its ranks all compute the same", layout.ep));
  if (const std::int64_t count = model.facts().expert_count; layout.ep > 1 && experts && layout.model() > std::max<std::int64_t>(kExpertGroups, count))
    told.push_back(fmt::format("tp x ep is {}, and the model has {} experts: the other ranks have none", layout.model(), count));
  if (layout.cp > 1 && !is_cut(positions, layout.cp))
    told.push_back(
        fmt::format("cp={} cuts longer sequences than those of this context, {} positions: its ranks have whole ones, as with dp", layout.cp, positions));
  return told;
}

}  // namespace lockstep
