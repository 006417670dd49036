// The trainer: the same forward as the engine's, with a tape; gradients; AdamW; the next version of the weights.
// Bits depend on the data alone: not on its order, its split into micro-batches, packing, checkpointing, threads.
// Knows no files, no text, no environment. One thread at a time.
//   Trainer trainer(runtime, images, {}); trainer.forward_backward(data, loss); trainer.optim_step(adam);
//   engine.set_weights(trainer.weights());
#pragma once
#include <memory>

#include "model/runtime.h"
#include "train/data.h"

namespace lockstep {

struct TrainerOptions {
  std::int64_t micro_batch = 0;      // sequences a micro-batch; 0: all in one
  bool checkpoint_activations = false;
  bool accumulate = false;           // several forward_backward calls before one optim_step
  bool train_indexer = false;        // indexer parameters move (their gradient is the index loss)
  std::int64_t page_size = 16;
};

struct IndexTraining {
  bool dense_attention = false;  // warm-up: attend to everything, the indexer learns the head-mean
  bool index_loss = false;
};

struct AdamParameters {
  double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double weight_decay = 0;       // decoupled; of matrices, not of norms and biases
  double max_norm = 1.0;         // 0: no clipping
  double router_bias_rate = 0;  // u: b_e += u sign(mean load - load_e); 0: frozen
};

struct OptimResult {
  double gradient_norm = 0;
  std::uint64_t version = 0;
};

// Everything that a restart needs, on the host; images are packed (model/weights.h).
struct TrainerState {
  WeightImages masters, first_moments, second_moments;  // moments of untrained parameters are empty
  std::int64_t step = 0;
};

class Trainer {
 public:
  Trainer(Runtime& runtime, const WeightImages& masters, const TrainerOptions& options);
  ~Trainer();

  ForwardBackwardResult forward_backward(const std::vector<TrainSequence>& data, const LossOptions& loss, const IndexTraining& index = {});
  // Forward only: log-probabilities of the targets through the training path.
  std::vector<std::vector<float>> score(const std::vector<TrainSequence>& data);
  // Throws numeric (and changes nothing) when the gradient has a NaN or an infinity.
  OptimResult optim_step(const AdamParameters& adam);

  const std::shared_ptr<const WeightSet>& weights() const { return weights_; }
  std::int64_t step() const { return step_; }
  WeightImages gradient_images();        // after forward_backward; packed
  WeightImages master_images();
  TrainerState state();
  void restore(const TrainerState& state);
  // XXH3-64 over the file-order fp32 values of all gradients / masters.
  std::uint64_t gradient_hash();
  std::uint64_t master_hash();

 private:
  struct Sums;
  // run(sequences of one micro-batch, index of the first of them), in order.
  template <class F>
  void for_each_micro_batch(const std::vector<TrainSequence>& data, F&& run) const;
  void run_micro_batch(const std::vector<const TrainSequence*>& data, const LossOptions& loss, double normaliser, double index_weight,
                       const IndexTraining& index, bool gradient, ForwardBackwardResult& result, std::size_t first, Sums& sums);
  bool moves(const Parameter& parameter) const { return parameter.trained && (!parameter.indexer || options_.train_indexer); }
  void upload_masters(const WeightImages& masters);
  void check(const std::vector<TrainSequence>& data, const LossOptions& loss) const;
  WeightImages download(const std::vector<Buffer>& buffers);
  std::uint64_t hash_images(const WeightImages& images) const;

  Runtime& runtime_;
  TrainerOptions options_;
  std::vector<Buffer> masters_, first_moments_, second_moments_;
  std::vector<Buffer> router_loads_;
  std::unique_ptr<GradientSet> gradients_;
  std::unique_ptr<KvCache> cache_;
  std::shared_ptr<const WeightSet> weights_;
  std::int64_t step_ = 0;
  int pending_calls_ = 0;
};

}  // namespace lockstep
