// What the registries of one training service share: store, executor, queues, ledger, futures. Any thread, except where a member says otherwise.
// Order of locks. A thread that holds one of a line takes only those of later lines:
// - MetadataRoom
// - one model (HostedModel::state)
// - the writers of Samplers, Checkpoints (RecordWriter)
// - the maps of Models, Samplers, Checkpoints
// - RequestNumbers
// - the writer of Sessions, those of StoredRecords
// - CustomLosses, Sessions, HeardSessions, StoredRecords
// - those that call nobody back: store, futures, feed, lanes, executor, memory ledger, CheckpointSnapshots
// A heartbeat takes those of HeardSessions, and only tries others, so it waits for no disk.
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
#include "serving/on_executor.h"
#include "serving/serving.h"
#include "store/training_store.h"

namespace lockstep {

// Of a critic, for TrainingCommons::refuse_critic.
inline constexpr const char kNothingToSample[] = "whose head says values, so there are no tokens to sample; save_state keeps its weights";

struct TrainingCommons {
  // Errors: io, already_exists where another process has the state's folder.
  TrainingCommons(std::shared_ptr<TrainingBase> base, std::shared_ptr<GenerationService> generation, const TrainingServiceOptions& options);

  KeyLimit limit_of(std::int64_t most) const { return {most, options.key_share}; }
  Runtime& runtime() const { return *base->opened.runtime; }
  const Manifest& base_manifest() const { return base->opened.model->manifest(); }
  // Error not_found, with the known names, unless it names the base or its critics.
  void check_base(const std::string& name) const;
  // What a model of these settings starts from: the base, or of a critic the same with a value head, which is opened when the first one comes; its weights
  // are read when the first adapter does (Resting::make). Errors: unsupported where there are no critics; those of opening it.
  TrainingBase& base_of(const OnExecutor& on, const ModelSettings& settings);
  // Error invalid_argument: one of the two is a critic's, the other is not.
  void check_kind(const CheckpointRecord& checkpoint, const std::string& base_model) const;
  // Error unsupported when it is a critic's; `why` continues "... is a critic, ".
  void refuse_critic(const std::string& base_model, const std::string& why) const;

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

 private:
  OfExecutor<std::shared_ptr<TrainingBase>> values_;  // the base of critics; null: there was none yet
};

}  // namespace lockstep
