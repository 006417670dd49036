// Forwards that were asked for log-probabilities alone, kept with what a backward needs of them: when the gradient of the same rows
// under the same weights is asked for next, the head and the backward are all that is left to do. That is what a loss computed by a
// client does: log-probabilities first, then a gradient with weights made of them. What is kept is used once, and no bit changes.
// Within `most_bytes` of all trainers together; the least recently kept go first. A trainer drops its own when its weights move.
// One thread at a time (the executor's); statistics() any.
//   auto kept = std::make_shared<KeptPasses>(bytes); TrainerOptions{.kept = kept};
#pragma once
#include <atomic>
#include <list>
#include <memory>

#include "base/memory_ledger.h"
#include "model/adapter.h"
#include "train/data.h"

namespace lockstep {

class GradientSet;

// One pass with its tape; what it is made of is known to ForwardPass.
class KeptPass {
 public:
  virtual ~KeptPass() = default;
};

// Which rows under which weights. Two passes of equal keys have equal bits.
struct PassKey {
  const GradientSet* gradients = nullptr;  // where its backward deposits: whose it is
  std::uint64_t weights = 0, adapter = 0;  // their identities, which no others of the process have; 0: no adapter
  struct Rows {
    std::vector<std::int32_t> tokens, targets, experts;
    std::int64_t targets_per_row = 1, prefix_group = -1, shared_prefix = 0;
    std::size_t place = 0;  // in the data: what is kept puts its results there, so another split into micro-batches is another key
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
  // `room`, where it is given: what is kept is claimed there too, as "kept forwards".
  explicit KeptPasses(std::int64_t most_bytes, const std::shared_ptr<MemoryLedger>& room = nullptr);

  bool enabled() const { return most_bytes_ > 0; }
  // Before a pass of about so many bytes: whether keeping it is worth it; older ones make room.
  bool make_room(std::int64_t bytes);
  void keep(PassKey key, std::unique_ptr<KeptPass> pass, std::int64_t bytes);
  // Null: there is none. It is gone from here.
  std::unique_ptr<KeptPass> take(const PassKey& key);
  // So that others have its room. False: there is none.
  bool drop_oldest();
  // All that would deposit there.
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
  std::optional<MemoryLedger::Claim> room_;  // before the entries: it goes after them
  Entries entries_;  // oldest first
  Statistics statistics_;
};

}  // namespace lockstep
