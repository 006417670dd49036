// What a trainer is told and what it keeps: plain values, shared by the trainer and its ranks.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/weights.h"
#include "parallel/layout.h"
#include "train/optimizers/optimizer.h"

namespace lockstep {

class KeptPasses;

struct TrainerOptions {
  std::int64_t micro_batch = 0;      // sequences a micro-batch; 0: all in one
  bool checkpoint_activations = false;
  bool accumulate = false;           // several forward_backward calls before one optim_step
  // With it, where most steps have one call: that one takes no accumulators (24 bytes a weight, and the time to fill and empty them), its
  // data is held until the step, and when a second call comes it is taken once more. From that step on there are accumulators. No bit
  // changes. Of a Trainer; an adapter's accumulators are small.
  bool mostly_one_call = false;
  bool share_prefixes = false;       // rows of equal prefixes in a micro-batch are computed once in the forward; no bit changes
  bool declared_prefixes = false;    // sequences may declare shared prefixes (train/data.h): other bits, another training digest
  bool train_indexer = false;        // indexer parameters move (their gradient is the index loss)
  std::int64_t page_size = 16;
  // Not empty: moments, and masters that have a narrower copy beside them, are in a file there (one a rank) instead of in memory.
  std::string optimizer_folder;
  // That file's pages leave this process's memory after each use: of many trainers, the one that steps has its state in memory.
  bool release_state = false;
  OptimizerFamily optimizer = adamw();  // of a Trainer; an adapter is told its own
  // Where forwards of score() stay for the gradient that may follow (train/kept_passes.h); null: nowhere. One rank alone uses it.
  std::shared_ptr<KeptPasses> kept;
  RankLayout ranks;                  // more than one: ranks are threads of this process, each with a backend of its own
};

struct IndexTraining {
  bool dense_attention = false;  // warm-up: attend to everything, the indexer learns the head-mean
  bool index_loss = false;
};

// What must be known of a batch before the first of its sequences arrives (Trainer::begin_batch); its normaliser is the loss's.
struct BatchPlan {
  std::size_t sequences = 0;
  std::int64_t rows = 0;  // tokens of all; with an index loss alone, which is a mean over them
};

struct OptimResult {
  double gradient_norm = 0;  // after gradient_scale, before the clip
  std::uint64_t version = 0;
  std::int64_t elements = 0;  // of the gradient: weights that move
  // Of groups of parameters (attention, mlp, unembedding, embedding, norm, other), scaled too; one rank alone.
  std::vector<std::pair<std::string, double>> group_norms;
};

// Everything that a restart needs, on the host; images are packed (model/weights.h).
struct TrainerState {
  WeightImages masters, first_moments, second_moments;  // moments of untrained parameters are empty
  std::int64_t step = 0;
};

}  // namespace lockstep
