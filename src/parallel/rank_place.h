// Where one rank stands: the layout, its number, and its end of each group. Without communicators it is alone.
//   RankPlace alone; RankPlace mine = place_of(ranks, 3);
#pragma once
#include "parallel/thread_ranks.h"

namespace lockstep {

struct RankPlace {
  RankLayout layout;
  int rank = 0;
  Communicator *world = nullptr, *tensor = nullptr, *model = nullptr, *data = nullptr;  // null: one rank
  int tensor_rank() const { return layout.tensor_of(rank); }
  int model_rank() const { return layout.model_of(rank); }
  int data_rank() const { return layout.data_of(rank); }
};

inline RankPlace place_of(ThreadRanks& ranks, int rank) {
  return {ranks.layout(), rank, &ranks.world(rank), &ranks.tensor(rank), &ranks.model(rank), &ranks.data(rank)};
}

}  // namespace lockstep
