// Options and results of trainers, shared by the trainer and its ranks. Plain values.
//   TrainerOptions options{.micro_batch = 8, .checkpoint_activations = true};
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/weights.h"
#include "parallel/layout.h"
#include "train/optimizers/optimizer.h"

namespace lockstep {

class KeptForwards;
class KeptPasses;

struct TrainerOptions {
  std::int64_t micro_batch = 0;  // sequences a micro-batch; 0: all in one
  bool checkpoint_activations = false;
  bool accumulate = false;  // several forward_backward calls before one optim_step
  // With `accumulate`, when most steps have one call: the first call uses no accumulators (24 bytes per weight, and the time to fill and empty
  // them); its data is held until the step, and if a second call comes, its gradient is recomputed into accumulators, which are used from
  // then on. No bit changes. Trainer only; an adapter's accumulators are small.
  bool mostly_one_call = false;
  bool share_prefixes = false;     // rows of equal prefixes in a micro-batch are computed once in the forward; no bit changes
  bool declared_prefixes = false;  // sequences may declare shared prefixes (train/data.h): other bits, another training digest
  bool train_indexer = false;      // indexer parameters move (their gradient is the index loss)
  bool indexer_alone = false;      // with train_indexer: no other parameter moves
  std::int64_t page_size = 16;
  // Rows that feed-forward layers compute at a time, about, where their activations are not kept (model/operations/row_tiles.h); 0: all. No bit changes.
  std::int64_t row_tile = 8192;
  // Not empty: moments, and masters beside narrower compute copies, are in a file there (one per rank) instead of in memory.
  std::string optimizer_folder;
  // That file's pages leave this process's memory after each use: of many trainers, the one that steps has its state in memory.
  bool release_state = false;
  OptimizerFamily optimizer = adamw();  // of a Trainer; an adapter has its own
  // Where score() keeps its forwards for a backward that may follow (train/kept_passes.h); null: not kept. Single rank only.
  std::shared_ptr<KeptPasses> kept;
  // Where an engine on the same runtime may have kept forwards of the same weights (model/kept_forwards.h): they are read instead of computed, and
  // each step drops those of earlier weights. No bit changes. Null: nowhere. Of several ranks those of keeps_over_ranks (model/kept_ranks.h) read them.
  std::shared_ptr<KeptForwards> kept_forwards;
  std::uint64_t kept_owner = 0;  // whose of them a Trainer reads (KeptForwards::Root); an adapter's says so itself
  RankLayout ranks;              // more than one: threads of this process, or of several, each with a backend of its own
};

struct IndexTraining {
  bool dense_attention = false;  // warm-up: attend to everything, the indexer learns the head-mean
  bool index_loss = false;
};

// What must be known of a batch before its first sequence arrives (Trainer::begin_batch), beside LossOptions::normaliser.
struct BatchPlan {
  std::size_t sequences = 0;
  std::int64_t rows = 0;  // tokens of all its sequences: the divisor of the indexers' loss; 0 where that is not trained
};

struct OptimResult {
  double gradient_norm = 0;  // after gradient_scale, before the clip
  std::uint64_t version = 0;
  std::int64_t elements = 0;  // of the gradient: trained weights
  // Of groups of parameters (attention, mlp, unembedding, embedding, norm, other), scaled too.
  std::vector<std::pair<std::string, double>> group_norms;
};

// Everything that a restart needs, as host images (model/weights.h).
struct TrainerState {
  WeightImages masters, first_moments, second_moments;  // moments of untrained parameters are empty
  std::int64_t step = 0;
};

}  // namespace lockstep
