// What the registries of one training service have in common: what they stand on, and where work goes and results come from. Any thread, but where a
// member says otherwise.
// Locks are taken in this order, and none is held while another of an earlier line is taken:
//   MetadataRoom
//   one model (HostedModel::state)
//   the writers of Samplers, Checkpoints (RecordWriter)
//   the maps of Models, Samplers, Checkpoints
//   RequestNumbers
//   the writer of Sessions, those of KeptRecords
//   CustomLosses, Sessions, HeardSessions, KeptRecords
//   what calls nobody back: store, futures, feed, lanes, executor, memory ledger
// A heartbeat takes those of HeardSessions and the map of Models, and tries for others: it waits for no disk.
#pragma once
#include <memory>

#include "base/folder_lock.h"
#include "host/future_feed.h"
#include "host/futures.h"
#include "host/intake.h"
#include "host/metadata_room.h"
#include "host/request_numbers.h"
#include "host/training_base.h"
#include "host/training_options.h"
#include "host/training_queue.h"
#include "host/training_statistics.h"
#include "serving/serving.h"
#include "store/training_store.h"

namespace lockstep {

struct TrainingCommons {
  // Errors: io, already_exists where another process has the state's folder.
  TrainingCommons(std::shared_ptr<TrainingBase> base, std::shared_ptr<GenerationService> generation, const TrainingServiceOptions& options);

  KeyLimit limit_of(std::int64_t most) const { return {most, options.key_share}; }
  Runtime& runtime() const { return *base->opened.runtime; }
  const Manifest& base_manifest() const { return base->opened.model->manifest(); }
  // Error not_found: no name of the base, with those that there are.
  void check_base(const std::string& name) const;

  const std::shared_ptr<TrainingBase> base;
  const std::shared_ptr<GenerationService> generation;
  const TrainingServiceOptions options;
  const std::unique_ptr<FolderLock> lock;  // of the state's folder
  const std::shared_ptr<TrainingStore> store;
  const std::shared_ptr<Deadlines> deadlines = std::make_shared<Deadlines>();
  Intake intake;
  FutureFeed feed;
  Futures futures;
  RequestNumbers numbers;
  MetadataRoom metadata;
  TrainingStatistics statistics;
  const std::shared_ptr<TrainingQueue> queue;  // of the models' lanes
};

}  // namespace lockstep
