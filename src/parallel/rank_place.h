// One rank's coordinates: the layout, its number, and its communicator in each group. Null communicators: it is the only rank.
//   RankPlace alone; RankPlace mine = ranks.place(0);
#pragma once
#include "parallel/communicator.h"
#include "parallel/layout.h"

namespace lockstep {

struct RankPlace {
  RankLayout layout;
  int rank = 0;
  // Groups: all ranks; its tp ranks; its stage of its replica (tp x ep ranks); its peers, one in every replica (dp x cp). Null: it is the only rank.
  Communicator *world = nullptr, *tensor = nullptr, *model = nullptr, *data = nullptr;
  // Its peers in the stages of its replica, in their order; and the pairs that it makes with the stage before (where it is rank 1) and with the one
  // after (where it is rank 0). A first stage has none before, a last one none after: null.
  Communicator *stages = nullptr, *before = nullptr, *after = nullptr;
  // The replicas that have the pieces of its long sequences: one rank of each, with the same share of the model.
  Communicator* context = nullptr;
  int tensor_rank() const { return layout.tensor_of(rank); }
  int model_rank() const { return layout.model_of(rank); }
  int stage() const { return layout.stage_of(rank); }
  int data_rank() const { return layout.data_of(rank); }
  int context_rank() const { return layout.context_of(rank); }
};

}  // namespace lockstep
