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
  std::string lost;                                                    // not empty: its state is lost, and only load is accepted
  std::string unmade;                                                  // not empty: why its creation failed; no operation is accepted
  std::map<std::int64_t, std::shared_ptr<NumberedOperation>> waiting;  // by sequence number, until their turn
  std::int64_t next = 1;                                               // the next sequence number
  std::int64_t acknowledged = 0;                                       // the highest that was answered
  double gap_since = 0;                                                // since when the next number is missing; 0: none waits for it
  bool gradients_gone = false;  // acknowledged gradients were lost with an earlier process, and the client has not got that error yet
  bool gap_watched = false;     // a timer for the missing number is set
  TrainingActivity activity;
};

struct ModelWork {
  std::unique_ptr<TrainedModel> trained;                     // null: not made yet, or moved to disk
  std::vector<std::shared_ptr<BatchOperation>> early;        // of `waiting`: they have run early, or begun to
  std::int64_t gradient_tokens = 0, gradient_sequences = 0;  // of gradients that no step has used
  bool gradient_declares = false;                            // some of them are of declared prefixes
  TurnSize turn;                                             // how batches are cut into turns
  MemoryLedger::Claim room, gradient_room;                   // for the trained model; for gradients that no step has used
  std::int64_t most_rows = 0;                                // largest turn since it is in memory
  std::int64_t waiting_bytes = 0;                            // memory that the gradients on disk will need
  int gave_way = 0;                                          // consecutive turns given up for others
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
  std::atomic<bool> in_memory{false}, rested{false};  // rested: moved to disk
  Guarded<ModelState> state;
  OfExecutor<ModelWork> work;
};

}  // namespace lockstep
