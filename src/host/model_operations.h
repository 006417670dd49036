// The operations of clients on the models that they train: forward_backward, optim_step, save, load and others. Each call is answered at once with a request
// id (host/futures.h), and runs on the executor when its turn in the model's order has come (host/model_lanes.h). A call throws the errors of
// ModelLanes::submit; an error while it runs becomes the request's result. Any thread.
//   const std::string request = operations.forward_backward(owner, model, 1, batch, encode);
#pragma once
#include <string>

#include "host/checkpoint_files.h"
#include "host/control_plane.h"
#include "host/custom_losses.h"
#include "host/model_lanes.h"
#include "host/retention.h"
#include "host/samplers.h"
#include "host/training_requests.h"

namespace lockstep {

class ModelOperations {
 public:
  struct Registries {
    ModelLanes& lanes;
    Models& models;
    CustomLosses& custom_losses;
    Checkpoints& checkpoints;
    CheckpointFiles& files;
    CheckpointSnapshots& snapshots;
    CheckpointWeights& weights;
    Samplers& samplers;
    const ControlPlane& control;
    Retention& retention;
  };
  ModelOperations(const OperationTools& tools, const Registries& registries) : tools_(tools), commons_(tools.commons), to_(registries) {}

  std::string forward_backward(const std::string& owner, const std::string& model, std::int64_t sequence, TrainingBatch batch, Encode<TrainingOutput> encode);
  // A forward that also returns the `top_k` likeliest tokens of every row, 1 to SamplingParameters::kMaxTopLogprobs.
  std::string forward_top_k(const std::string& owner, const std::string& model, std::int64_t sequence, TrainingBatch batch, std::int64_t top_k,
                            Encode<TrainingOutput> encode);
  std::string optim_step(const std::string& owner, const std::string& model, std::int64_t sequence, const OptimizerRequest& request,
                         Encode<OptimizerOutput> encode);
  std::string save(const std::string& owner, const std::string& model, std::int64_t sequence, const SaveRequest& request, Encode<CheckpointRecord> encode);
  // A sampler of the model at that moment; `inflight`: one that follows later saves.
  std::string save_sampler(const std::string& owner, const std::string& model, std::int64_t sequence, bool inflight, Encode<SamplerRecord> encode);
  std::string load(const std::string& owner, const std::string& model, std::int64_t sequence, const std::string& path, bool optimizer,
                   Encode<ModelRecord> encode);
  // Loads only an adapter's weights into a model of the same rank, from a promoted adapter or a checkpoint. Missing matrices are initialised anew.
  std::string load_adapter(const std::string& owner, const std::string& model, std::int64_t sequence, const std::string& from, Encode<ModelRecord> encode);

 private:
  std::string forward_backward_custom(const std::string& owner, const std::string& model, std::int64_t sequence, TrainingBatch batch,
                                      Encode<TrainingOutput> encode);
  struct BegunCheckpoint {
    CheckpointRecord record;
    std::shared_ptr<void> place;  // Checkpoints::begin
  };
  BegunCheckpoint begin_checkpoint(const OnExecutor& on, HostedModel& model, const SaveRequest& request);
  void tell_ranks(const OnExecutor& on, const ModelSettings& settings, const TrainedModel& trained);
  CheckpointRecord write_checkpoint(const OnExecutor& on, HostedModel& model, const SaveRequest& request);
  // Where forwards are kept, samples of a checkpoint that was just written are made under the trainer's own weights, so that it finds what they keep.
  void share_weights(const OnExecutor& on, TrainedModel& trained, const CheckpointRecord& saved);
  // The request's result comes when the store has the snapshot.
  void save_snapshot(const OnExecutor& on, HostedModel& model, const SaveRequest& wanted, const std::string& request, const Encode<CheckpointRecord>& encode);
  // `digest`: the training digest that its weights are under; empty: not known.
  void take_adapter(const OnExecutor& on, HostedModel& model, const AdapterLayout& layout, const WeightImages& images, const std::string& digest);
  // The model has new weights, and is no longer lost. Its record is in the store when this returns.
  ModelRecord take_up(HostedModel& model, const ModelSettings& settings, std::int64_t steps, const std::string& digest);

  const OperationTools& tools_;
  TrainingCommons& commons_;
  const Registries to_;
};

}  // namespace lockstep
