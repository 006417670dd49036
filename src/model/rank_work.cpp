#include "model/rank_work.h"

namespace lockstep {

ForwardCounts work_of_ranks(Ranks& ranks, const std::function<ForwardCounts(int)>& of) {
  const RankLayout& layout = ranks.layout();
  const auto all = ranks.gather<ForwardCounts>(of);
  ForwardCounts sum;
  for (int rank = 0; rank < layout.size(); ++rank) {
    ForwardCounts own = all[static_cast<std::size_t>(rank)];
    const int place = layout.model_of(rank);
    if (place >= layout.tp) own.pairs_read = 0;  // expert-parallel ranks attend alike
    if (place > 0) own.segment_rows = {};
    if (layout.replica_of(rank) > 0) own.pairs_visible = own.pairs_selected = own.expert_rows_chosen = own.segment_rows.asked = 0;
    sum += own;
  }
  return sum;
}

}  // namespace lockstep
