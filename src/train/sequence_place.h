// To which ranks the sequences of a step are dealt: to the replicas, and with rows=dealt (parallel/layout.h) to their ep ranks, too. Each of those is then a
// replica of all that experts are not: its layout has a dp of all of them, and its data group is all ranks. Experts keep the replicas that they have.
//   const RankLayout dealt = layout_of_sequences(layout); const RankPlace mine = place_of_sequences(place);
#pragma once
#include "parallel/rank_place.h"

namespace lockstep {

RankLayout layout_of_sequences(const RankLayout& layout);
RankPlace place_of_sequences(const RankPlace& place);

}  // namespace lockstep
