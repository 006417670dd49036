// Predicts the memory of a trained model before it is made, by running the model itself on a backend that counts allocations and computes nothing
// (planning/memory_plan.h). Done once for each kind of model; the memory of a turn is then looked up by its number of rows.
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

struct ModelMemory {
  std::int64_t resting = 0;                  // between operations, without `pass`
  std::int64_t weights = 0;                  // of one version, which a sampler may hold
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

 private:
  ModelMemory count(const ModelSettings& settings);

  TrainingBase counting_;
  std::map<std::string, ModelMemory> known_;
};

}  // namespace lockstep
