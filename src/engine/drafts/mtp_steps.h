// Runs a model's layer of multi-token prediction (model/blocks/mtp_layer.h) on the device to make drafts. With every forward of the model its depth 1
// computes the same rows and writes its cache entries to the same pages; between forwards depths 1, 2, ... predict the next tokens. Each row combines
// its token with the hidden state of the position before, which is the row before it, or, for the first row of a slice, the state stored with its
// page.
//   MtpSteps steps(runtime, weights, pages, page_size, sequences); steps.store(MtpSteps::states_of(plan, page_size));
//   auto said = steps.guess(model_weights, sequences, 5);
// Of a layer whose depths share no keys a guess of depth k writes an entry too, behind the sequence's own, in its last page or in spare ones; the
// forward that computes those positions writes over it.
// Over several ranks, of one process or more, each has a MtpSteps with the whole layer and makes the same calls: what the model's part of a rank lacks is
// gathered.
// The layer's weights are the same under all weights and adapters of the model. They change how many draft tokens are accepted; no bit of an answer
// depends on them, except under rejection sampling. Used by one thread.
#pragma once
#include <span>

#include "engine/held_shares.h"
#include "engine/scheduler.h"
#include "model/runtime.h"

namespace lockstep {

class MtpSteps {
 public:
  // `weights`: of the layer, on the runtime's device; `sequences`: how many may be guessed for at once; `sharding` and `shares` (StepRunner::set_shares): of
  // the rank, null: the only one. Error as check().
  MtpSteps(Runtime& runtime, std::shared_ptr<const WeightSet> weights, std::int64_t pages, std::int64_t page_size, std::int64_t sequences,
           const Sharding* sharding = nullptr, const HeldShares* shares = nullptr);
  // Error invalid_argument where the weights are another layer's.
  static void check(const Runtime& runtime, const WeightSet* weights);
  // Other weights from the next forward on; what stands in the cache stays. Error as above.
  void set_weights(std::shared_ptr<const WeightSet> weights);
  bool differs(const WeightSet& weights) const { return weights_.get() != &weights; }
  // What a page costs beside the model's entries.
  static std::int64_t page_bytes(const Model& model, const Profile& profile, std::int64_t page_size);

  // The model's forward over the rows of `batch`, which `slices` are, ends with `hidden`.
  void follow(const WeightSet& model_weights, const Batch& batch, const std::vector<SequenceSlice>& slices, const Tensor& hidden);
  // A row of the last forward's hidden states, and the page that it is stored with.
  struct PageState {
    std::int32_t row, page;
  };
  // What a forward's plan sampled has been accepted: the state of each sequence's last computed position is to be stored with its page.
  static std::vector<PageState> states_of(const std::vector<PlannedSlice>& plan, std::int64_t page_size);
  void store(const std::vector<PageState>& states);
  // What may follow the known tokens of sequences that decode (all but the last token is computed, at least one is): so many tokens of each, fewer where
  // a NaN ends them. They are drawn as the request draws, with the noise of their positions (coupled acceptance) or, with their laws in
  // Drafting::layer_laws, noise of their own (rejection sampling); penalties, biases and constraints are not applied. All sequences are under `model_weights`.
  std::vector<std::vector<std::int32_t>> guess(const WeightSet& model_weights, std::span<Sequence* const> sequences, std::int64_t tokens);

 private:
  void write_states(const std::vector<PageState>& states);
  // The states of pages, a row each.
  void read_states(const View& y, const std::vector<std::int32_t>& pages);
  View upload(const std::vector<std::int32_t>& values);
  Context of_model(const WeightSet& weights, const Batch& batch);
  // Only the first rank keeps what tokens were drawn with.
  bool first() const { return !sharding_ || sharding_->place().rank == 0; }
  std::vector<std::int32_t> sample(Context& ctx, const View& hidden, std::span<Sequence* const> sequences, std::int64_t ahead);

  Runtime& runtime_;
  const MtpLayer& layer_;
  std::shared_ptr<const WeightSet> weights_;
  const std::int64_t pages_, page_size_, spare_;  // spare_: pages behind the sequences' own, for each
  const Sharding* const sharding_;
  const HeldShares* const shares_;
  KvCache cache_;
  Buffer states_;       // f32 [pages, hidden]
  Buffer last_hidden_;  // of the last forward, as long as it is not known which rows are right
  std::vector<Buffer> uploads_;
  std::vector<std::shared_ptr<const TokenLaw>> laws_;  // that the last tokens of sequences under rejection sampling were drawn with
};

// What one position takes of a cache, its share of its page included: the layer's entries too where it is there and `options` may draft with it.
std::int64_t cache_bytes_a_position(const Model& model, const Profile& profile, const EngineOptions& options);

}  // namespace lockstep
