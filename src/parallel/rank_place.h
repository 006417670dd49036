// Where one rank stands: the layout, its number, and its end of each group. Without communicators it is alone.
//   RankPlace alone; RankPlace mine = ranks.place(0);
#pragma once
#include "parallel/communicator.h"
#include "parallel/layout.h"

namespace lockstep {

struct RankPlace {
  RankLayout layout;
  int rank = 0;
  // All ranks; its tp ranks; its replica (tp x ep ranks); its place in every replica. Null: one rank.
  Communicator *world = nullptr, *tensor = nullptr, *model = nullptr, *data = nullptr;
  int tensor_rank() const { return layout.tensor_of(rank); }
  int model_rank() const { return layout.model_of(rank); }
  int data_rank() const { return layout.data_of(rank); }
};

}  // namespace lockstep
