#include "train/sequence_place.h"

#include "base/error.h"

namespace lockstep {

RankLayout layout_of_sequences(const RankLayout& layout) {
  if (!layout.deals_rows()) return layout;
  if (layout.dp * layout.ep != layout.size() || layout.shard == RankShard::weights)
    fail(ErrorCode::internal, "rows are dealt to the ep ranks of {}, which has other ranks, or weights in shares, too", layout.text());
  return {.dp = layout.dp * layout.ep};
}

RankPlace place_of_sequences(const RankPlace& place) {
  RankPlace own = place;
  own.layout = layout_of_sequences(place.layout);
  if (place.layout.deals_rows()) own.data = place.world;
  return own;
}

}  // namespace lockstep
