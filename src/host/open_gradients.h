// Gradients that no optimizer step has used yet: counts them per model, drops those of batches that ran too early, and saves them to disk with a
// model that leaves memory (host/waiting_gradients.h).
//   gradients.admit(on, model, piece, sequences); trained.begin(...); gradients.mark(on, model); ... gradients.forget(on, model);
#pragma once
#include "host/memory_room.h"
#include "host/models.h"
#include "host/waiting_gradients.h"

namespace lockstep {

class OpenGradients {
 public:
  OpenGradients(TrainingCommons& commons, Models& models, MemoryRoom& memory);

  // Called before TrainedModel::begin with the number of sequences of the first piece: claims memory, and its key's disk space so that the model can leave
  // memory at any time. Errors resource_exhausted.
  void admit(const OnExecutor& on, HostedModel& model, std::size_t piece, const std::vector<TrainSequence>& all);
  void mark(const OnExecutor& on, HostedModel& model);  // the model has gradients that count
  // `declares`: of data with declared shared prefixes (train/data.h), which the training digest of weights that they move says.
  void count(const OnExecutor& on, HostedModel& model, const ForwardBackwardResult& result, bool declares = false);
  // Undoes all batches that ran early.
  void undo_early(const OnExecutor& on, HostedModel& model);
  // Called before a gradient counts: early ones must not be mixed with it.
  void undo_stray(const OnExecutor& on, HostedModel& model);
  void drop(const OnExecutor& on, HostedModel& model);  // discards the model's gradients, then forget
  // Error io when an earlier process ended with gradients that counted: they and later ones are dropped, and the client must send all again.
  void check_complete(const OnExecutor& on, HostedModel& model);
  void forget(const OnExecutor& on, HostedModel& model);  // the model has none any more, in memory or on disk
  // Saves those of a model that leaves memory, and reads them back. If they cannot be read, the model is lost. Errors: io, corrupt_file.
  void save(const OnExecutor& on, HostedModel& model);
  void read(const OnExecutor& on, HostedModel& model, TrainedModel& fresh);

 private:
  TrainingCommons& commons_;
  Models& models_;
  MemoryRoom& memory_;
  WaitingGradients waiting_;
};

}  // namespace lockstep
