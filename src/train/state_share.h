// One rank's share of a trainer's state, as its file of a checkpoint has it: which rows of which parameters it keeps, their values, and where what it reads in
// another layout stands. Adapters' and whole trainers' alike. Knows no files. Used by the rank's thread.
//   StateShare share = rank.share(); for (const StateShare::Kept& kept : share.kept()) write(kept, share.rows(kept));
#pragma once
#include <vector>

#include "model/rows_place.h"
#include "train/optimizer_state.h"

namespace lockstep {

class StateShare {
 public:
  // `sharding` null: the rank has all of the model.
  StateShare(OptimizerState& state, const RankRows& rows, const Sharding* sharding) : state_(state), rows_(rows), sharding_(sharding) {}

  struct Kept {
    StatePart part = StatePart::master;
    RowsPlace place;
  };
  // Of all ranks together every element of the state once.
  std::vector<Kept> kept() const;
  OptimizerState::OwnRows rows(const Kept& kept) const { return state_.own_rows(kept.part, static_cast<std::size_t>(kept.place.parameter)); }
  BackendKind backend() const { return state_.backend(); }  // whose streams read them
  // The rows of parameter i that a restore reads (StateReader): all of this rank's share of it, or those whose state the rank keeps.
  RowsPlace place(std::size_t i, bool own) const;
  // What a restore of this share reads from a whole state in memory, which outlives it.
  StateReader reader(const TrainerState& whole) const;
  int rank() const { return rows_.place().rank; }
  std::int64_t steps() const { return state_.steps(); }

 private:
  OptimizerState& state_;
  const RankRows& rows_;
  const Sharding* sharding_;
};

}  // namespace lockstep
