// The use cases of a training API, whatever its wire: sessions, models that clients train, samplers, checkpoints. A model's operations run strictly
// in the order of their sequence numbers, whatever the order of their arrival; a repeated number is the same request. Each call returns a request id
// at once (host/futures.h). Every object belongs to an owner; others get not_found. Knows no JSON of a wire and no transport.
// This class only constructs, starts and stops the registries; callers use them directly. Each has its own lock (their order:
// host/training_commons.h). Any thread.
//   TrainingService service(base, generation, options); const auto session = service.session_life().create(owner, {});
#pragma once
#include <memory>

#include "host/checkpoint_files.h"
#include "host/checkpoint_snapshots.h"
#include "host/checkpoint_weights.h"
#include "host/checkpoints.h"
#include "host/control_plane.h"
#include "host/custom_losses.h"
#include "host/model_lanes.h"
#include "host/model_life.h"
#include "host/model_operations.h"
#include "host/models.h"
#include "host/retention.h"
#include "host/samplers.h"
#include "host/session_life.h"
#include "host/sessions.h"
#include "host/training_sampling.h"
#include "host/waiting_reasons.h"

namespace lockstep {

class TrainingService {
 public:
  // `generation` uses base->executor and base->opened.runtime.
  TrainingService(std::shared_ptr<TrainingBase> base, std::shared_ptr<GenerationService> generation, const TrainingServiceOptions& options);
  ~TrainingService();  // stop()
  TrainingService(const TrainingService&) = delete;
  TrainingService& operator=(const TrainingService&) = delete;

  // Finishes submitted work, writes models to disk, and rejects new work. Calling it again has no effect.
  void stop();

  const TrainingServiceOptions& options() const { return commons_.options; }
  const TrainingBase& base() const { return *commons_.base; }
  GenerationService& generation() const { return *commons_.generation; }
  const std::shared_ptr<GenerationService>& shared_generation() const { return commons_.generation; }
  const TrainingStatistics& statistics() const { return commons_.statistics; }
  const std::shared_ptr<KeptForwards>& kept_forwards() const { return commons_.base->options.kept_forwards; }  // null: none are kept
  const KeptPasses::Statistics& reuse() const { return commons_.base->options.kept->statistics(); }

  // Results by request id; finished samples by sampler.
  Futures& futures() { return commons_.futures; }
  FutureFeed& feed() { return commons_.feed; }
  const MetadataRoom& metadata() const { return commons_.metadata; }

  // The registries.
  Sessions& sessions() { return sessions_; }
  Models& models() { return models_; }
  Samplers& samplers() { return samplers_; }
  Checkpoints& checkpoints() { return checkpoints_; }
  CustomLosses& custom_losses() { return custom_losses_; }
  ControlPlane& control() { return control_; }

  // What runs on them.
  SessionLife& session_life() { return session_life_; }
  ModelLife& model_life() { return model_life_; }
  ModelLanes& lanes() { return lanes_; }
  ModelOperations& operations() { return operations_; }
  TrainingSampling& sampling() { return sampling_; }
  const Resting& resting() const { return resting_; }
  const WaitingReasons& waiting_reasons() const { return waiting_reasons_; }

 private:
  void write_down(const OnExecutor& on);

  TrainingCommons commons_;
  MemoryRoom memory_;
  Sessions sessions_;
  Models models_;
  StoredRecords<PromotedModel> promoted_;
  CheckpointSnapshots snapshots_;
  Checkpoints checkpoints_;
  CheckpointFiles files_;
  CheckpointWeights weights_;
  CustomLosses custom_losses_;
  Samplers samplers_;
  OpenGradients gradients_;
  Resting resting_;
  const OperationTools tools_;
  ModelLanes lanes_;
  ModelLife model_life_;
  ControlPlane control_;
  Retention retention_;
  ModelOperations operations_;
  TrainingSampling sampling_;
  WaitingReasons waiting_reasons_;
  SessionLife session_life_;
};

}  // namespace lockstep
