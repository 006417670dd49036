// Shares equal parameters between the models of one process: a parameter with the same type, shape and bytes is in memory once. Examples: two
// versions of a model of which only some layers were trained; one model under two names. Weight sets are never written, so sharing a buffer is safe;
// whoever writes into its own calls make_private first. A digest finds candidates, whose bytes are then compared.
//   const auto pool = std::make_shared<WeightPool>(ledger);   const auto part = pool->part("the model 'b'", WeightPool::Claims::each);
//   const auto weights = reader->weight_set(backend, profile, 0, part.get());   part->offer(weights);
// For devices that compute at once (BackendKind::cpu), which one thread of the process uses at a time. Any thread, one at a time a part.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/memory_ledger.h"
#include "model/weights.h"

namespace lockstep {

class WeightPool : public std::enable_shared_from_this<WeightPool> {
 public:
  // How what a part has is counted in the ledger. each: by parameter, once for all parts that have it so; stays: with something else, as long as the
  // process, so that others who have it count nothing; none: with something else that may change (what follows a channel claims its two copies).
  enum class Claims { each, stays, none };
  class Part;

  // Claims are of the category.
  explicit WeightPool(std::shared_ptr<MemoryLedger> ledger, std::string category = "deployments");
  // `what` is the subject of errors.
  std::shared_ptr<Part> part(std::string what, Claims claims);
  // Of what others could find here: no model finds more.
  std::int64_t bytes() const;

 private:
  using Key = std::tuple<DType, std::int64_t, std::int64_t, std::string>;  // rows, columns, digest of the bytes
  // A part's set that has a parameter; until the set is offered, the buffer itself.
  struct Holder {
    const Part* part = nullptr;
    std::weak_ptr<const WeightSet> set;
    std::size_t parameter = 0;
    Buffer buffer;
    Buffer get() const;
  };
  struct Entry {
    std::int64_t bytes = 0, counted = 0;  // counted: parts that claim it, or whose claim is elsewhere
    MemoryLedger::Claim claim;
    std::vector<Holder> holders;
  };
  void drop(const Part* part, const Key& key);
  void forget_empty(const Key& key);

  const std::shared_ptr<MemoryLedger> ledger_;
  const std::string category_;
  mutable std::mutex mutex_;
  std::map<Key, Entry> entries_;
};

// What one model has of it. Ends after the model's buffers.
class WeightPool::Part {
 public:
  Part(std::shared_ptr<WeightPool> pool, std::string what, Claims claims);
  ~Part();
  Part(const Part&) = delete;

  // Before a parameter of so many bytes is made. Error resource_exhausted, where it is claimed.
  void reserve(std::int64_t bytes);
  // The equal one that another has, or `made` itself, which others find from then on.
  Buffer keep(Backend& backend, Buffer made);
  // The set that keep()'s buffers are of now: as long as it lives others find them, and no more those of the set before.
  void offer(const std::shared_ptr<const WeightSet>& set);
  // True: nobody else has it, and nobody comes to have it; it may be written. False: it stays as it is, for others.
  bool make_private(const Buffer& buffer);
  // Of what is claimed: what others have too, and what they have not.
  std::int64_t shared_bytes() const { return counted_bytes(true); }
  std::int64_t own_bytes() const { return counted_bytes(false); }

 private:
  std::int64_t counted_bytes(bool shared) const;
  const std::shared_ptr<WeightPool> pool_;
  const std::string what_;
  const Claims claims_;
  MemoryLedger::Claim reserved_;
  std::map<std::uint64_t, Key> by_address_;  // of buffers that it has
  std::set<Key> counted_;
  std::vector<MemoryLedger::Claim> alone_;
};

}  // namespace lockstep
