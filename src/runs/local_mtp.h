// The layer of multi-token prediction that a supervised run, or one of reinforcement learning, trains beside its model (trained/trained_layer.h): initial
// weights, steps, checkpoints beside the model's. The model is only read, so its weights have the bits of a run without the layer (but with
// MtpSettings::joint, where the layer's losses are part of its gradient). Works on the executor of `trainer`, which outlives it. One thread at a time,
// never the executor's.
//   LocalMtp layer({.depths = 5}, opened, options, initial, trainer);
//   layer.take_step(std::vector<TrainSequence>{}, adam); layer.save(run, 1, 2);
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "checkpoint/training_checkpoint.h"
#include "runs/local_trainer.h"

namespace lockstep {

class TrainedLayer;

struct MtpSettings {
  static constexpr std::int64_t kMostDepths = 8;
  std::int64_t depths = 0;     // how many tokens ahead it is trained; 0: it is not trained
  std::string loss = "ce";     // one of mtp_losses()
  std::string keys = "auto";   // one of mtp_keys(): auto is what config.json says
  std::string state = "auto";  // one of mtp_states(), in the same way
  double learning_rate = 1e-3, max_norm = 1.0, router_bias_rate = 1e-3;
  bool joint = false;  // its losses move the model too (TrunkShare::gradients of train/mtp_rank.h), whose trainer accumulates; not on line
};

std::vector<std::string> mtp_losses();  // ce, tv, both (train/mtp_trainer.h)
std::vector<std::string> mtp_keys();    // auto, shared, own (model/blocks/mtp_layer.h)
std::vector<std::string> mtp_states();  // auto, normed, unnormed: what a depth is given of the one before

// Initial weights of a layer that the files do not have (model/weights.h).
struct MtpInitial {
  std::uint64_t seed = 0;
  double deviation = 0.02;
};

// With which every process opens the model whose layer is trained: where its config says nothing of one, it gets one. Error unsupported beside an adapter
// over weights of few bits, of which no copy with the layer can be exported.
RuntimeSettings settings_with_mtp(const RuntimeSettings& settings, const MtpSettings& mtp, std::int64_t adapter_rank);

class LocalMtp {
 public:
  // It begins with the layer of the model's files, or with random weights where they have none; with an indexer, that is trained too. Errors: those of
  // MtpTrainer; unsupported for a model whose family has no such layer.
  LocalMtp(const MtpSettings& settings, const OpenedModel& opened, const TrainerOptions& options, const MtpInitial& initial, LocalTrainer& trainer);
  ~LocalMtp();
  LocalMtp(const LocalMtp&) = delete;
  LocalMtp& operator=(const LocalMtp&) = delete;

  // Gradient and step on the batch, under the trainer's weights as they are now. Jointly: between the trainer's forward_backward and its step, of which the
  // gradient gets the layer's part. Returns what metrics.jsonl tells of it. Errors: those of MtpTrainer::forward_backward; numeric for a loss that is not
  // finite; unsupported where the model cannot be trained jointly. After an error of forward_backward the trainer has no gradient either.
  Json take_step(const std::vector<TrainSequence>& batch, const AdamParameters& adam);
  // The same on sampled tokens, each with weight 1 where the policy is trained on it. Sequences stand alone, whatever prefixes they declare.
  Json take_step(const std::vector<PolicyDatum>& rollouts, const AdamParameters& adam);
  // The weights as they are now, for an engine on this runtime. Not for a counting device.
  std::shared_ptr<const WeightSet> weights_for(const std::shared_ptr<Runtime>& runtime);

  // RUN/mtp/checkpoints: written before the model's checkpoint of the run's step `step`, and one more than the model keeps, so that a kill between the two
  // leaves both of an earlier step.
  void save(const RunDirectory& run, std::int64_t step, std::int64_t keep_last);
  // Goes on beside a model that stands at `step`: of a run that was begun from another's checkpoint, and whose layer that run trained too, with that layer.
  // Errors: not_found where the run has no layer of this step; those of load_checkpoint.
  void begin_or_go_on(const RunDirectory& run, std::int64_t step);
  // Starts from the layer beside the checkpoint `step` of a run's folder.
  void begin_from(const std::filesystem::path& run, std::int64_t step);

  const MtpSettings& settings() const { return settings_; }
  WeightImages images();
  std::string weights_sha256(const WeightImages& masters) const;

 private:
  void restore(TrainingCheckpoint checkpoint, bool weights_alone);
  // That of a run's folder which was the layer's state at this step of the run.
  std::optional<TrainingCheckpoint> find(const std::filesystem::path& run, std::int64_t step) const;
  const MtpSettings settings_;
  const MtpLayer& layer_;
  Profile profile_;
  LocalTrainer& trainer_;
  std::shared_ptr<Runtime> runtime_;
  OfExecutor<std::unique_ptr<TrainedLayer>> layer_trainer_;
  // A run's step without anything to learn from leaves the layer as it was: then its newest checkpoint is that of several steps, from since_ on.
  std::int64_t saved_ = -1, since_ = 0;  // its steps when it was last saved
  // For another runtime than the trainer's: what was made of which weights.
  struct Made {
    std::shared_ptr<const WeightSet> weights, of;
  };
  OfExecutor<Made> made_;
};

}  // namespace lockstep
