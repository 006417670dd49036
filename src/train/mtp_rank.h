// One rank's part of the training of a layer of multi-token prediction (train/mtp_trainer.h). The model's part of the rank gives hidden states,
// embeddings and logits, which ranks make together as ever; the layer is whole on every rank that has the head, and data-parallel ranks share its
// sequences and its optimizer's state. Stages of a pipeline that have no head send what the layer reads, and have no layer. Where replicas keep rows of the
// model's weights alone (RankShard::weights), these are gathered for a step of the layer and freed behind it. The losses may move the model too
// (TrunkShare::gradients): then stages send gradients back the same way.
//   MtpRank part(runtime, masters, {.depths = 5}, options, place); part.forward_backward({weights.get()}, data); part.optim_step(adam);
// All ranks make the same calls with the same data, each on its own thread. Bits do not depend on ranks.
#pragma once
#include <memory>

#include "model/adapter_rows.h"
#include "model/runtime.h"
#include "train/data.h"
#include "train/draft_overlap.h"
#include "train/gradients.h"
#include "train/optimizer_state.h"
#include "train/router_loads.h"

namespace lockstep {

enum class MtpLoss { ce, tv, both };

struct MtpTraining {
  static constexpr std::int64_t kMostDepths = 8;
  std::int64_t depths = 5;     // 1 to kMostDepths
  bool train_indexer = false;  // by its loss, whose target is the mean over the depths that share its selection
  MtpLoss loss = MtpLoss::ce;
};

struct MtpResult {
  double loss = 0;                    // what is trained
  std::vector<double> of_depth;       // normalised cross-entropy of each; 0 where it is not trained
  double variation = 0;               // the loss tv; 0 where it is not trained
  std::vector<double> overlap;        // of each depth, the mean: the probability that its draft is accepted; 0 where tv is not trained
  std::vector<std::int64_t> targets;  // of each, how many rows have one
  double index_loss = 0;              // mean KL a row, 0 when not trained
};

// The model as a rank has it (the trunk): its share of the weights, or its rows of it, and its share of the adapter over them; null: none.
struct TrunkShare {
  const WeightSet* weights = nullptr;
  const AdapterWeights* adapter = nullptr;
  // Joint training: what the layer's losses say of the rank's share of the model's weights is added there, in accumulators that are there between backwards.
  // Of a model whose head is not its input embedding, without an adapter, and not with rows=dealt; of all ranks or of none. Null: the model is read alone.
  GradientSet* gradients = nullptr;
};

class MtpRank {
 public:
  // `masters`: of the layer's manifest.
  MtpRank(Runtime& runtime, const WeightImages& masters, const MtpTraining& training, const TrainerOptions& options, const RankPlace& place);

  bool has_layer() const { return layer_ != nullptr; }
  // Whether it counts, where several ranks have the same.
  bool answers() const { return has_layer() && place_.model_rank() == 0 && place_.data_rank() == 0; }
  // Of data that passed the trainer's checks. The result is that of all ranks; on a rank without the layer it is empty.
  MtpResult forward_backward(const TrunkShare& trunk, const std::vector<TrainSequence>& data);
  void abandon_gradients();
  OptimResult optim_step(const AdamParameters& adam);
  void restore(const TrainerState& state);

  // Below: only with the layer. Images are whole on data-parallel rank 0; all data-parallel ranks call together.
  const std::shared_ptr<const WeightSet>& weights() const { return layer_->weights; }
  WeightImages gradient_images() { return layer_->gradients.images(); }
  WeightImages images(StatePart part) { return layer_->state.images(part); }

 private:
  struct Depth;
  struct Values;
  class Joint;
  struct Normalisers {
    double targets, chains;  // sums of weights
  };
  struct Layer {
    Layer(Runtime& runtime, const WeightImages& masters, const MtpTraining& training, const TrainerOptions& options, const RankPlace& place);
    void publish();
    RankRows rows;
    Gradients gradients;
    OptimizerState state;
    RouterLoads loads;
    std::shared_ptr<const WeightSet> weights;
  };
  void run(const TrunkShare& trunk, const std::vector<TrainSequence>& data, const std::vector<std::size_t>& part, const Normalisers& normalisers,
           Values& values);
  // The rank's share of the model's weights where it keeps rows of it alone; null: it has all of it. Data-parallel ranks call together.
  std::shared_ptr<const WeightSet> gathered(const TrunkShare& trunk) const;
  // There the rank keeps its rows of the sums alone, too, which are joined when all is added.
  void leave_gradients(const TrunkShare& trunk) const;
  RankRows rows_of_trunk(const TrunkShare& trunk) const;
  // The model's hidden states behind its final norm, where the layer is; none on other ranks. `joint`: on its tape; null: on none.
  Tensor trunk_states(const TrunkShare& trunk, const std::vector<TrainSequence>& data, const std::vector<std::size_t>& part,
                      const std::vector<SequenceSlice>& slices, std::int64_t pages, Joint* joint);
  // The embeddings of the slices' tokens, in the same way; jointly with a node of the layer's tape, where the layer is.
  Tensor embedded(const TrunkShare& trunk, const std::vector<SequenceSlice>& slices, Joint* joint, Tape* of_layer);
  // The model's weights for work beside its forward, which turns nothing and reaches no cache.
  Context trunk_context(const TrunkShare& trunk, const Batch& batch, Tape* tape = nullptr);
  // Adds to `values` the cross-entropy of the layer's depth `ahead` + 1, and stores in `depth` its gradient with respect to the layer's normed
  // output, where the backward through the layer begins. `logits`: room for those of a chunk of rows.
  void add_cross_entropy(Context& of_model, const TrunkShare& trunk, Context& ctx, Depth& depth, std::int64_t ahead, const std::vector<TrainSequence>& data,
                         const std::vector<std::size_t>& part, double normaliser, const Buffer& logits, Values& values);
  void add_variation(Context& of_model, const TrunkShare& trunk, Tape& tape, const std::vector<Depth>& depths, const View& hidden,
                     const std::vector<DraftChain>& chains, double normaliser, Values& values, Joint* joint);
  MtpResult result_of(Values& values, std::int64_t rows) const;

  Runtime& runtime_;
  const MtpTraining training_;
  const TrainerOptions options_;
  const RankPlace place_;
  std::unique_ptr<const Sharding> sharding_;  // null: this rank has the whole model
  KvCache no_cache_;
  std::unique_ptr<Layer> layer_;  // null: its stage of the pipeline has no head
};

}  // namespace lockstep
