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

// Bytes by rows: a line from each point that was counted to the next.
class MemoryByRows {
 public:
  void add(std::int64_t rows, std::int64_t bytes);  // rows ascending; equal ones keep the most
  std::int64_t bytes(std::int64_t rows) const;

 private:
  std::vector<std::pair<std::int64_t, std::int64_t>> points_;
};

// Rows of a piece as its memory goes by them: each sequence in whole pages.
std::int64_t memory_rows(const TrainSequence* begin, const TrainSequence* end);
// Bytes that a turn of a piece takes beside its rows for the tokens that sampling kept (TrainSequence::kept_tokens), which no table of rows can know:
// one token keeps three others, the next a hundred thousand. At most, and 0 where nothing was cut.
std::int64_t kept_set_bytes(const TrainSequence* begin, const TrainSequence* end, std::int64_t vocabulary);

struct ModelMemory {
  std::int64_t resting = 0;                  // between operations, without what `pass` says
  std::int64_t weights = 0;                  // of one version, which a sampler may hold beside it
  std::int64_t alone = 0, accumulators = 0;  // gradients until the step: of one call in one piece; of several
  std::int64_t step = 0;                     // for as long as an optimizer step lasts, beside all that
  std::int64_t reading = 0;                  // for as long as it is read from a checkpoint
  MemoryByRows pass;                         // what stays of a turn for the next one, by the largest so far; adapters share the base's
  MemoryByRows turn, forward;                // for as long as a turn lasts: of a gradient (and of a forward that is kept), of a forward
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
