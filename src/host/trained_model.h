// A model that a client trains: what the operations of a training API do to it, whether all of its parameters move or an adapter's.
// Executor's thread alone.
//   model->begin(sequences, loss); while (rows are left) model->add(places, piece); result = model->finish();
#pragma once
#include <algorithm>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/memory_ledger.h"
#include "checkpoint/training_checkpoint.h"
#include "serving/loading.h"
#include "host/training_records.h"
#include "model/adapter.h"
#include "train/kept_passes.h"
#include "train/trainer.h"

namespace lockstep {

class FrozenBase;

// What a sampler needs of a model at one moment; later steps of training do not change it.
struct SamplerWeights {
  std::shared_ptr<const WeightSet> weights;       // null: not in memory
  std::shared_ptr<const AdapterWeights> adapter = nullptr;  // over them; null: none
};

// What every model of a server starts from, and what they share.
struct TrainingBase {
  std::string name;                   // in answers
  std::vector<std::string> names;     // that clients may call it by, and are told: its own, aliases
  std::vector<std::string> folders;   // that they may call it by, too, where they know them; not told
  std::string folder;
  bool is_called(const std::string& what) const {
    return std::find(names.begin(), names.end(), what) != names.end() || std::find(folders.begin(), folders.end(), what) != folders.end();
  }
  OpenedModel opened;                 // masters included: a new model starts with them
  std::shared_ptr<Executor> executor;
  std::shared_ptr<const WeightSet> weights;  // the compute copy of the masters
  std::string optimizer_folder;       // not empty: trainers keep their optimizer's state in files there
  std::shared_ptr<KeptPasses> kept;          // of all models' forwards; executor
  std::shared_ptr<MemoryLedger> ledger;      // what all of it may take; null: a service makes one without a limit
  mutable std::shared_ptr<FrozenBase> frozen;  // executor; made with the first adapter
};

class TrainedModel {
 public:
  virtual ~TrainedModel() = default;
  // A forward_backward in pieces; gradients add up until optim_step. After an error drop(): no gradient is left.
  virtual void begin(std::size_t sequences, const LossOptions& loss) = 0;
  virtual void add(const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece) = 0;
  virtual ForwardBackwardResult finish() = 0;
  virtual void drop() = 0;
  // Whether the gradient of a batch of so many sequences, whose first piece has so many of them, needs accumulators.
  virtual bool accumulates(std::size_t piece, std::size_t sequences) const { return true; }
  // Forward only.
  virtual std::vector<std::vector<float>> score(const std::vector<TrainSequence>& piece) = 0;
  // The same with a loss, of a piece of `batch`.
  virtual void evaluate(OpenBatch& batch, const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece) = 0;
  virtual OptimResult optim_step(const AdamParameters& adam) = 0;
  virtual std::int64_t steps() const = 0;
  virtual SamplerWeights sampler_weights() = 0;
  // All of a checkpoint at once; without the optimizer's state for samplers.
  virtual TrainingCheckpoint checkpoint(bool optimizer) = 0;
  // The same parameter by parameter, so that writing it down needs no room for all; `checkpoint` then has the rest alone.
  virtual std::vector<float> state_image(StatePart part, std::size_t parameter) = 0;
  virtual bool has_state(StatePart part, std::size_t parameter) const { return true; }
  // `optimizer` false: moments and the count of steps start anew.
  virtual void restore(TrainingCheckpoint&& checkpoint, bool optimizer) = 0;
  virtual const Manifest& manifest() const = 0;

  // Models that name the same (not null) can stand in one pass, of add() or (`forward`) of score().
  virtual const void* company(bool forward) const { return nullptr; }
  struct Piece {
    TrainedModel* model = nullptr;
    const std::vector<std::size_t>* places = nullptr;  // of add()
    const std::vector<TrainSequence>* data = nullptr;
    std::vector<std::vector<float>> logprobs;          // of score()
    std::optional<Error> failure;                      // of this one alone
  };
  // add() or score() of several models of this one's company, each once: each has the bits that it has alone. Other errors are thrown,
  // and are everybody's.
  virtual void run_together(std::vector<Piece>& pieces, bool forward) {}
};

// Writes a checkpoint of it (checkpoint/training_checkpoint.h), a few parameters at a time. Returns its step.
std::int64_t write_trained_model(const std::filesystem::path& folder, TrainedModel& model, const Profile& profile, bool optimizer);

// Of the kind that the settings say. Error unsupported for a kind that there is not.
std::unique_ptr<TrainedModel> make_trained_model(const TrainingBase& base, const ModelSettings& settings);

// All parameters move.
std::unique_ptr<TrainedModel> make_full_model(const TrainingBase& base, const ModelSettings& settings);
// Error unsupported for one that there is not.
OptimizerFamily optimizer_family(const ModelSettings& settings);
// What all trainers of a server have in common.
TrainerOptions trainer_options(const TrainingBase& base);
// Executor.
std::shared_ptr<FrozenBase> frozen_base(const TrainingBase& base);
// How the adapter of a new model begins: its init_method and seed. Error invalid_argument for a method that there is not.
WeightImages adapter_images(const AdapterLayout& layout, const ModelSettings& settings);
std::shared_ptr<const AdapterLayout> adapter_layout(const TrainingBase& base, const ModelSettings& settings);

// Between a trainer's state and what a checkpoint holds of it. state_of throws invalid_argument for another profile's checkpoint.
TrainingCheckpoint checkpoint_of(TrainerState&& state, const Profile& profile, bool optimizer);
// Error invalid_argument when `digest`, which `what` was written under, is another profile's.
void check_profile(const std::string& digest, const std::string& what, const Profile& profile);
TrainerState state_of(TrainingCheckpoint&& checkpoint, const Profile& profile, const Manifest& manifest, bool optimizer);

}  // namespace lockstep
