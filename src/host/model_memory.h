// Predicts the memory of a trained model before it is made, by running the model itself on a backend that counts allocations and computes nothing
// (planning/memory_plan.h), on every rank. Done once for each kind of model; the memory of a turn is then looked up by its number of rows.
// One thread at a time.
//   ModelMemoryPlanner planner(base); const ModelMemory& memory = planner.of(settings); claim(memory.resting);
#pragma once
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "host/training_base.h"

namespace lockstep {

// Bytes as a function of rows: linear between counted points.
class MemoryByRows {
 public:
  void add(std::int64_t rows, std::int64_t bytes);  // rows ascending; the larger of equal ones stays
  std::int64_t bytes(std::int64_t rows) const;

 private:
  std::vector<std::pair<std::int64_t, std::int64_t>> points_;
};

// Rows of a piece for its memory: each sequence in whole pages.
std::int64_t memory_rows(const TrainSequence* begin, const TrainSequence* end);
// Bytes for the kept sets of a piece (TrainSequence::kept_tokens), beside those by rows, since one token may keep three others and the next a hundred
// thousand. An upper bound; 0 where there are none.
std::int64_t kept_set_bytes(const TrainSequence* begin, const TrainSequence* end, std::int64_t vocabulary);

// Of all ranks here together.
struct ModelMemory {
  std::int64_t resting = 0;                  // between operations, without `pass`
  std::int64_t weights = 0;                  // of one version, which a sampler may hold, with the shares of it that the engine's ranks make
  std::int64_t copied = 0;                   // of those, what a version to sample from takes beside the model itself: 0 where it is the model's own
  std::int64_t base = 0;                     // shares that ranks make of the weights under adapters, when the first one comes
  std::int64_t alone = 0, accumulators = 0;  // gradients until the step: of one call in one piece; of several
  std::int64_t step = 0;                     // during an optimizer step, in addition
  std::int64_t reading = 0;                  // while it is read from a checkpoint
  MemoryByRows pass;                         // what a turn leaves for the next, by the largest so far; adapters share the base's
  MemoryByRows turn, forward;                // during a turn: of a gradient (and a kept forward), of a forward
};

class ModelMemoryPlanner {
 public:
  explicit ModelMemoryPlanner(const TrainingBase& base);
  // Errors: those of make_trained_model.
  const ModelMemory& of(const ModelSettings& settings);
  // While ranks that share the model cut it or put it together: its whole compute copy and image in fp32, and their shares of that; 0 where each has all.
  std::int64_t cutting() const;

 private:
  ModelMemory count(const ModelSettings& settings);

  // f(one rank's part of the whole model), of those that share it.
  template <class F>
  void each_sharding(const F& f) const;

  TrainingBase counting_;
  int local_;  // ranks of this process: the first of them are counted
  std::map<std::string, ModelMemory> known_;
};

}  // namespace lockstep
