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

  // Before TrainedModel::begin, of a batch whose first piece has so many sequences: room in memory, and on disk, which is its own key's: so that the
  // model can leave memory whenever another needs its place. Errors resource_exhausted.
  void admit(const OnExecutor& on, HostedModel& model, std::size_t piece, const std::vector<TrainSequence>& all);
  void mark(const OnExecutor& on, HostedModel& model);  // there are some that count
  void count(const OnExecutor& on, HostedModel& model, const ForwardBackwardResult& result);
  // All that ran early is as if it had not.
  void undo_early(const OnExecutor& on, HostedModel& model);
  // Before a gradient counts: what may be undone later must not stand beside it.
  void undo_stray(const OnExecutor& on, HostedModel& model);
  void drop(const OnExecutor& on, HostedModel& model);  // of the trained model, and forget
  // Error io: some that count went down with an earlier process, and their client was not told. They are dropped, with what came since: it sends all again.
  void check_complete(const OnExecutor& on, HostedModel& model);
  void forget(const OnExecutor& on, HostedModel& model);  // there are none any more, in memory or on disk
  // Of a model that leaves memory; and back, when it comes again. read: where they cannot be read, the model is lost. Errors: io, corrupt_file.
  void save(const OnExecutor& on, HostedModel& model);
  void read(const OnExecutor& on, HostedModel& model, TrainedModel& fresh);

 private:
  TrainingCommons& commons_;
  Models& models_;
  MemoryRoom& memory_;
  WaitingGradients waiting_;
};

}  // namespace lockstep
