// The state of a trained model (trained/trained_model.h), as TrainedModel::restore takes it, in a file of each rank and without a whole of it anywhere
// (checkpoint/share_checkpoint.h). The thread of the model alone.
//   model.shares().begin(folder); ... const std::vector<ShareFileEnd> ends = model.shares().finish();
#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

#include "checkpoint/share_file.h"

namespace lockstep {

class StateShares {
 public:
  virtual ~StateShares() = default;
  // Each rank's file in `folder`, which is there and which all processes see, is written while the model goes on; what changes the state waits for that.
  virtual void begin(const std::filesystem::path& folder) = 0;
  // Waits, and returns what ranks 0, 1, ... have written.
  virtual std::vector<ShareFileEnd> finish() = 0;
  // Reads a checkpoint that was made of such files. `steps`: that its state has taken; 0: its weights alone, with moments of zero.
  virtual void restore(const std::filesystem::path& folder, std::int64_t steps) = 0;
};

}  // namespace lockstep
