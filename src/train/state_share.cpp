#include "train/state_share.h"

#include <tuple>

namespace lockstep {

RowsPlace StateShare::place(std::size_t i, bool own) const {
  const auto id = static_cast<ParameterId>(i);
  RowsPlace place = all_rows_of(rows_.manifest().parameters()[i], id);
  if (sharding_) place.corner = sharding_->corner(id);
  if (own) std::tie(place.first, place.rows) = rows_.own_rows(i);
  return place;
}

std::vector<StateShare::Kept> StateShare::kept() const {
  std::vector<Kept> kept;
  for (std::size_t i = 0; i < rows_.manifest().parameters().size(); ++i) {
    if (sharding_ && !sharding_->answers_for(static_cast<ParameterId>(i))) continue;
    const RowsPlace own = place(i, true);
    if (own.size() == 0 || (!rows_.deals(i) && rows_.place().data_rank() != 0)) continue;  // state that is not trained is whole on every replica
    for (const StatePart part : {StatePart::master, StatePart::first_moment, StatePart::second_moment})
      if (state_.keeps(part, i)) kept.push_back({part, own});
  }
  return kept;
}

StateReader StateShare::reader(const TrainerState& whole) const {
  if (!sharding_) return reader_of(whole);
  std::vector<float> share;
  return [read = reader_of(whole), sharding = sharding_, share](StatePart part, std::size_t i, bool own) mutable -> const std::vector<float>& {
    return share = sharding->share_of(static_cast<ParameterId>(i), read(part, i, own));
  };
}

}  // namespace lockstep
