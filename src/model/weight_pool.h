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
  // How the parameters of a part are claimed in the ledger. each: one claim a parameter, shared by all parts of this kind that have it. stays: they
  // are claimed elsewhere for as long as the process lives, so other parts that have them claim nothing. none: they are claimed elsewhere, perhaps
  // not for ever (a deployment that follows a channel claims its two copies).
  enum class Claims { each, stays, none };
  class Part;

  // `category`: of the claims in the ledger.
  explicit WeightPool(std::shared_ptr<MemoryLedger> ledger, std::string category = "deployments");
  // `what` names the model in errors.
  std::shared_ptr<Part> part(std::string what, Claims claims);
  // Bytes of all parameters in the pool: the most that another model could share.
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

// One model's parameters in the pool. Destroyed after the model's buffers.
class WeightPool::Part {
 public:
  Part(std::shared_ptr<WeightPool> pool, std::string what, Claims claims);
  ~Part();
  Part(const Part&) = delete;

  // Call before a parameter of `bytes` bytes is made. Error resource_exhausted with Claims::each, if the ledger has no room.
  void reserve(std::int64_t bytes);
  // Returns an equal buffer that another part has, or `made` itself, which other parts find from then on.
  Buffer keep(Backend& backend, Buffer made);
  // The weight set that the buffers of keep() are in now. Other parts find them as long as it lives, and the previous set's no more.
  void offer(const std::shared_ptr<const WeightSet>& set);
  // True: no other part has the buffer or will get it, so it may be written. False: it is shared and must not be written.
  bool make_private(const Buffer& buffer);
  // Bytes claimed for parameters that other parts have too, and for those that they do not have.
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
