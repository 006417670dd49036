// One rank's coordinates: the layout, its number, and its communicator in each group. Null communicators: it is the only rank.
//   RankPlace alone; RankPlace mine = ranks.place(0);
#pragma once
#include "parallel/communicator.h"
#include "parallel/layout.h"

namespace lockstep {

struct RankPlace {
  RankLayout layout;
  int rank = 0;
  // Groups: all ranks; its tp ranks; its replica (tp x ep ranks); its peers, one in every replica. Null: a group of one.
  Communicator *world = nullptr, *tensor = nullptr, *model = nullptr, *data = nullptr;
  int tensor_rank() const { return layout.tensor_of(rank); }
  int model_rank() const { return layout.model_of(rank); }
  int data_rank() const { return layout.data_of(rank); }
};

}  // namespace lockstep
