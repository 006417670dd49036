// A client's model in a training server: its record, readable on any thread under the model's lock, and its state of training
// (trained/trained_model.h), which only steps of the executor touch. A caller that looked it up in Models keeps it alive; it may be unloaded
// meanwhile.
//   const ModelRecord now = model.record();   model.work.at(on).trained->optim_step(adam);
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/guarded.h"
#include "host/training_records.h"
#include "host/training_statistics.h"
#include "host/turn_size.h"
#include "serving/on_executor.h"
#include "trained/trained_model.h"

namespace lockstep {

class NumberedOperation;  // host/operation.h
class BatchOperation;

struct ModelState {
  ModelRecord record;
  std::string lost;                                                    // not empty: why no operation but load is taken
  std::string unmade;                                                  // not empty: why its creation failed; it is none, and nothing is taken
  std::map<std::int64_t, std::shared_ptr<NumberedOperation>> waiting;  // by sequence number: their turn has not come
  std::int64_t next = 1;                                               // sequence number whose turn it is
  std::int64_t acknowledged = 0;                                       // the highest that its client was answered for
  double gap_since = 0;                                                // when the number whose turn it is was found missing; 0: nothing waits for it
  bool gradients_gone = false;  // the server ended before a step took what was acknowledged, and its client was not told yet
  bool gap_watched = false;     // somebody will look whether the missing number has come
  TrainingActivity activity;
};

struct ModelWork {
  std::unique_ptr<TrainedModel> trained;                     // null: not made yet, or on disk
  std::vector<std::shared_ptr<BatchOperation>> early;        // of those that wait: they have run, or begun to
  std::int64_t gradient_tokens = 0, gradient_sequences = 0;  // what the gradients came from that no step has taken
  TurnSize turn;                                             // how its batches are cut
  MemoryLedger::Claim room, gradient_room;                   // of the trained model; of gradients that no step has taken
  std::int64_t most_rows = 0;                                // of its turns since it is in memory
  std::int64_t waiting_bytes = 0;                            // of gradients that wait on disk: the memory that they take
  int gave_way = 0;                                          // turns, one after the other
};

struct HostedModel {
  explicit HostedModel(const ModelRecord& record)
      : id(record.id), session(record.session), owner(record.owner), metadata_bytes(record.settings.user_metadata.bytes()) {
    const auto held = state.lock();
    held->record = record;
  }

  ModelRecord record() const {
    const auto held = state.lock();
    return held->record;
  }
  ModelSettings settings() const {
    const auto held = state.lock();
    return held->record.settings;
  }
  std::string lost() const {
    const auto held = state.lock();
    return held->lost;
  }
  bool has_open_gradients() const {
    const auto held = state.lock();
    return held->record.open_gradients;
  }

  const std::string id, session, owner;
  const std::int64_t metadata_bytes;
  std::atomic<bool> in_memory{false}, rested{false};  // rested: it left memory, and has not come back
  Guarded<ModelState> state;
  OfExecutor<ModelWork> work;
};

}  // namespace lockstep
