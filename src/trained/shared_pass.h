// One pass over a base's frozen weights for several models at once: adapters over it, and the base itself. Each has the bits that it has alone, and
// an error of one does not affect the others. Used by the thread of the base's runtime.
//   if (SharedPass* pass = one.shared_pass(false); pass && pass == other.shared_pass(false)) pass->run(pieces);
#pragma once
#include <cstddef>
#include <optional>
#include <vector>

#include "base/error.h"
#include "train/data.h"

namespace lockstep {

class TrainedModel;

class SharedPass {
 public:
  // One model's part of the pass: data to add or to score.
  struct Piece {
    TrainedModel* model = nullptr;
    const std::vector<std::size_t>* places = nullptr;  // of TrainedModel::add
    const std::vector<TrainSequence>* data = nullptr;
    std::vector<std::vector<float>> logprobs;  // of TrainedModel::score
    std::optional<Error> failure;              // of this one alone
  };
  virtual ~SharedPass() = default;
  // TrainedModel::add or score for each piece, at most one piece a model. Throws errors that are not a single piece's.
  virtual void run(std::vector<Piece>& pieces) = 0;
};

}  // namespace lockstep
