// Caches forwards that were run for log-probabilities only. When the gradient of the same rows under the same weights is requested next, only the
// head and the backward remain to be computed. A loss computed by the client does that: it asks for log-probabilities, then for a gradient with
// weights made of them.
//   auto kept = std::make_shared<KeptPasses>(bytes); TrainerOptions{.kept = kept};
// A kept forward is used once, and no bit changes. At most `most_bytes` over all trainers; the oldest are evicted first. A trainer drops its own when
// its weights change. One thread at a time (the executor's); statistics() any.
#pragma once
#include <atomic>
#include <list>
#include <memory>

#include "base/memory_ledger.h"
#include "model/adapter.h"
#include "train/data.h"

namespace lockstep {

class GradientSet;

// One pass with its tape; opaque here, defined by ForwardPass.
class KeptPass {
 public:
  virtual ~KeptPass() = default;
};

// The cache key: which rows under which weights. Two passes with equal keys have equal bits.
struct PassKey {
  const GradientSet* gradients = nullptr;  // where its backward deposits, which identifies the trainer
  std::uint64_t weights = 0, adapter = 0;  // their identities, unique in the process; 0: no adapter
  struct Rows {
    std::vector<std::int32_t> tokens, targets, experts;
    std::int64_t targets_per_row = 1, prefix_group = -1, shared_prefix = 0;
    std::size_t place = 0;  // index in the data: results are written there, so another split into micro-batches is another key
    bool operator==(const Rows&) const = default;
  };
  std::vector<Rows> sequences;  // in order
  bool operator==(const PassKey&) const = default;
  std::int64_t rows() const;
};
// Of the sequences `part` of the data. `adapter` may be null.
PassKey pass_key(const GradientSet* gradients, const WeightSet& weights, const AdapterWeights* adapter, const std::vector<TrainSequence>& data,
                 const std::vector<std::size_t>& part);

class KeptPasses {
 public:
  // `room`, if given: kept forwards are claimed there too, as "kept forwards".
  explicit KeptPasses(std::int64_t most_bytes, const std::shared_ptr<MemoryLedger>& room = nullptr);

  bool enabled() const { return most_bytes_ > 0; }
  // Nothing is kept for as long as one lives: of forwards whose gradient nobody will ask for. `passes` may be null.
  class Pause {
   public:
    explicit Pause(KeptPasses* passes) : passes_(passes) {
      if (passes_) ++passes_->pauses_;
    }
    ~Pause() {
      if (passes_) --passes_->pauses_;
    }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    KeptPasses* passes_;
  };
  // Call before a pass that would take about `bytes`: true if it may be kept, for which older ones are evicted.
  bool make_room(std::int64_t bytes);
  void keep(PassKey key, std::unique_ptr<KeptPass> pass, std::int64_t bytes);
  // Removes and returns it; null: there is none.
  std::unique_ptr<KeptPass> take(const PassKey& key);
  // Evicts the oldest to free memory. False: there is none.
  bool drop_oldest();
  // Drops all that would deposit there.
  void drop(const GradientSet* gradients);

  struct Statistics {
    std::atomic<std::int64_t> kept{0}, used{0}, dropped{0};  // dropped: never used
    std::atomic<std::int64_t> bytes{0};                      // now
  };
  const Statistics& statistics() const { return statistics_; }

 private:
  struct Entry {
    PassKey key;
    std::unique_ptr<KeptPass> pass;
    std::int64_t bytes = 0;
  };
  using Entries = std::list<Entry>;
  Entries::iterator remove(Entries::iterator entry);

  bool claim(std::int64_t bytes);

  const std::int64_t most_bytes_;
  int pauses_ = 0;
  std::optional<MemoryLedger::Claim> room_;  // before the entries: it goes after them
  Entries entries_;                          // oldest first
  Statistics statistics_;
};

// Of a loop whose steps ask for log-probabilities or values of their data and then for the gradient of the same: each step's forward is kept whatever it
// takes, since a gradient takes as much. Null in micro-batches, where there is to be memory for one, and over ranks, which keep nothing: the forward is
// then computed twice, to the same bits.
std::shared_ptr<KeptPasses> kept_by_steps(std::int64_t micro_batch, bool one_rank);

}  // namespace lockstep
