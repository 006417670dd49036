// What training moves, behind one interface: all parameters of a model, or an adapter's over frozen weights. The training API (host/) and runs on
// disk (runs/local_trainer.h) train through it alike.
//   auto model = make_trained_model(base, {.rank = 8, .seed = 1});
//   model->begin({.sequences = n}, loss); while (sequences are left) model->add(places, piece); result = model->finish();
//   model->optim_step(adam); sampler.use(model->sampler_weights());
// Knows no files of a run, no client, no text. The thread of the base's runtime alone.
#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "model/adapter.h"
#include "parallel/rank_use.h"
#include "serving/loading.h"
#include "train/open_batch.h"
#include "train/trainer.h"
#include "trained/shared_pass.h"
#include "trained/state_shares.h"
#include "trained/trained_settings.h"

namespace lockstep {

struct FrozenPasses;
struct MtpTraining;
class TrainedLayer;

// A model's weights at one moment, for a sampler; later steps do not change them.
struct SamplerWeights {
  std::shared_ptr<const WeightSet> weights;                 // null: not in memory
  std::shared_ptr<const AdapterWeights> adapter = nullptr;  // over them; null: none
};

// The base that models start from, with what they share.
struct TrainedBase {
  OpenedModel opened;                                 // a model of all parameters starts with its masters
  std::shared_ptr<const WeightSet> weights = {};      // the compute copy, under adapters; null: no adapter is made
  TrainerOptions options = {};                        // of every trainer; an optimizer is each model's own
  mutable std::shared_ptr<RankRuntimes> ranks = {};   // of all that is trained from it; made with the first
  mutable std::shared_ptr<FrozenPasses> frozen = {};  // what adapters share; made with the first
};

class TrainedModel {
 public:
  virtual ~TrainedModel() = default;
  // A whole batch at once, with no more memory than its gradient needs. With TrainerOptions::accumulate it adds to gradients that no step has used. Errors:
  // those of Trainer::forward_backward; unsupported for an index loss over an adapter.
  virtual ForwardBackwardResult forward_backward(const std::vector<TrainSequence>& data, const LossOptions& loss, const IndexTraining& index = {}) = 0;
  // The same in pieces, with the same bits; the loss's normaliser is given before the first. After an error call drop(), which discards all gradients.
  virtual void begin(const BatchPlan& plan, const LossOptions& loss, const IndexTraining& index = {}) = 0;
  virtual void add(const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece) = 0;
  virtual ForwardBackwardResult finish() = 0;
  virtual void drop() = 0;
  // Gradients that no step has taken, and may be in the middle of a batch, to disk and back (Trainer::save_gradients): the model that is made
  // of the same weights and reads them goes on with the bits that this one would have had. What has been told of an open batch stays in memory, and
  // goes from one to the other; the one that gave it away is good for nothing more.
  struct Unfinished {
    bool gradients = false, batch = false;
  };
  virtual Unfinished unfinished() const { return {}; }
  using ParkedBatch = std::shared_ptr<void>;  // null: none was open; of models of one kind
  virtual ParkedBatch save_gradients(const std::filesystem::path& folder) { return nullptr; }
  virtual void load_gradients(const std::filesystem::path& folder, const ParkedBatch& batch) {}
  // Whether a batch with that many sequences, that many of them in its first piece, needs accumulators.
  virtual bool accumulates(std::size_t piece, std::size_t sequences) const { return true; }
  // Forward only.
  virtual std::vector<std::vector<float>> score(const std::vector<TrainSequence>& piece) = 0;
  // The same with a loss, of a piece of `batch`.
  virtual void evaluate(OpenBatch& batch, const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece) = 0;
  virtual OptimResult optim_step(const AdamParameters& adam) = 0;
  virtual std::int64_t steps() const = 0;
  virtual SamplerWeights sampler_weights() = 0;
  // The model's layer of multi-token prediction, which is trained beside it from these weights, and goes before it (trained/trained_layer.h). At most one.
  // Errors: those of MtpTrainer.
  virtual std::unique_ptr<TrainedLayer> make_layer(const WeightImages& masters, const MtpTraining& training, const TrainerOptions& options) = 0;
  virtual WeightImages master_images() = 0;  // in fp32
  // All that a restart needs (state_of), parameter by parameter, so that writing needs no memory for all. Moments of what is not trained: empty images.
  virtual std::vector<float> state_image(StatePart part, std::size_t parameter) = 0;
  virtual bool has_state(StatePart part, std::size_t parameter) const { return true; }
  virtual void restore(const TrainerState& state) = 0;
  virtual StateShares& shares() = 0;                                // the same in files of the ranks
  virtual const Manifest& manifest() const = 0;                     // of the trained parameters: the model's, or the adapter's
  virtual const AdapterLayout* adapter() const { return nullptr; }  // null: all parameters are trained
  virtual ForwardCounts work() const { return {}; }                 // of all forwards so far, as the kernels counted
  virtual std::vector<RankUse> rank_uses() const { return {}; }     // of the base's ranks, wherever they are, for all models of it; empty: there is one

  // The pass of add(), or (`forward`) of score(), that all models returning the same one can share; null: none.
  virtual SharedPass* shared_pass(bool forward) const { return nullptr; }
};

// All that restore() takes, in memory.
TrainerState state_of(TrainedModel& model);

// Makes a model of the kind in the settings; `base` outlives it. Where processes share its ranks, they
// make it too (trained/led_model.h). Error unsupported for an unknown kind.
std::unique_ptr<TrainedModel> make_trained_model(const TrainedBase& base, const TrainedSettings& settings);

// All parameters move.
std::unique_ptr<TrainedModel> make_full_model(const TrainedBase& base, const TrainedSettings& settings);
// Error unsupported for one that there is not.
OptimizerFamily optimizer_family(const TrainedSettings& settings);
std::vector<std::string> optimizer_names();
// The base's thread.
std::shared_ptr<FrozenPasses> frozen_passes(const TrainedBase& base);
// Its ranks in the layout of its options, of this process or of all processes.
std::shared_ptr<RankRuntimes> rank_runtimes(const TrainedBase& base);
// Initial values of a new adapter, by init_method and seed. Error invalid_argument for an unknown method.
WeightImages adapter_images(const AdapterLayout& layout, const TrainedSettings& settings);
std::shared_ptr<const AdapterLayout> adapter_layout(const TrainedBase& base, const TrainedSettings& settings);

}  // namespace lockstep
