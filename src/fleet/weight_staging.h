// Makes the weights of a snapshot from the live ones: as a spare copy that shares unchanged parameters, or as changes that are later written in place
// all at once, and undone if one fails. What goes to the device are the elements that changed (model/weight_changes.h). Every changed tensor is checked with
// the snapshot's digests, before and after; a tensor that is not the base of its delta is read from the store whole. It reads and writes the device in
// turns of some milliseconds on the executor, between the steps of live requests, and holds parts of tensors alone. One thread, not the executor's but
// where a function takes an OnExecutor.
//   WeightStaging staging(runtime, executor, SwapMemory::spare);
//   StagedWeights staged = staging.stage(store, chain, live, version, base_sha256, report);
//   if (!staged.next.weights) staged.next.weights = staging.write(on, staged, live);   // SwapMemory::single, in a step of the executor
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fleet/staged_tensor.h"
#include "model/adapter.h"
#include "model/runtime.h"
#include "model/weight_pool.h"
#include "serving/on_executor.h"
#include "sync/replica_record.h"
#include "sync/snapshot.h"

namespace lockstep {

enum class SwapMemory { spare, single };

// The live weights, and what is known of them.
struct LiveWeights {
  std::shared_ptr<const WeightSet> weights;
  std::shared_ptr<const AdapterWeights> adapter;     // over them; null: none
  std::map<std::string, std::string> digests;        // of the weights' tensors, by name: of those that are known
  std::map<std::string, std::string> adapter_bytes;  // of the adapter's tensors
  std::string snapshot;                              // of the weights; empty: they are the model folder's
};

struct StagedWeights {
  LiveWeights next;  // weights: null while they are to be written in place
  std::uint64_t version = 0, full_bytes = 0, changed_tensors = 0;
  using Change = StagedChange;
  std::vector<Change> changes;  // for SwapMemory::single
  // For ranks that have shares of the live weights: what changes in them. Null where that would be much of the weights, and where nobody shares them.
  std::shared_ptr<WeightChanges> for_ranks;
};

class WeightStaging {
 public:
  // `part`: shares equal parameters with other models of the process; null: nothing is shared. `ranks` share the model: 1 or more.
  WeightStaging(std::shared_ptr<Runtime> runtime, std::shared_ptr<Executor> executor, SwapMemory memory, std::shared_ptr<WeightPool::Part> part = nullptr,
                std::int64_t ranks = 1);

  // Called at each stage; may throw to end the staging.
  using Report = std::function<void(ReplicaStage stage)>;
  // `base_sha256` gives weights_sha256 of the model folder, for adapters. Errors: those of SnapshotChain; invalid_argument for a snapshot of another
  // model, another numerics profile or another base, which names what differs.
  StagedWeights stage(const Store& store, const SnapshotChain& chain, const LiveWeights& live, std::uint64_t version,
                      const std::function<std::string()>& base_sha256, const Report& report) const;
  // Writes the changes into the live weights' own memory and returns them as a new version; parameters that other models share are copied instead.
  // Digests of the bases are computed from the live memory before the first byte is written, those of results after the last one; after an error
  // (corrupt_file) the live weights are as they were. Sets staged.for_ranks.
  std::shared_ptr<const WeightSet> write(const OnExecutor& on, StagedWeights& staged, const LiveWeights& live) const;

 private:
  using Changes = std::map<ParameterId, ParameterChanges>;
  // A buffer of its own with the same bits.
  Buffer copy_of(ParameterId id, const Buffer& buffer) const;
  // Passes over tensors of some weights in steps of the executor; `after` is called in them, after each turn.
  void pass(const ModelTensors& tensors, const WeightSet& weights, std::vector<PassedTensor> list, const std::function<void()>& before_turn,
            const std::function<void()>& after = {}) const;
  // `where`: the executor, or the step of it that this is.
  template <class Where>
  std::string whole_tensor(Where& where, const ModelTensors& tensors, const WeightSet& weights, std::size_t i, SafetensorsType type) const;
  void make_payloads(const ModelTensors& tensors, const SnapshotChain& chain, const SnapshotTensor& wanted, const WeightSet& weights,
                     StagedWeights::Change& change) const;
  // Compares digests of changed tensors with the live memory's. Error corrupt_file.
  void check(const OnExecutor& on, const ModelTensors& tensors, const std::vector<StagedWeights::Change>& changes, const std::vector<Buffer>& buffers,
             bool after) const;
  // Adds to what ranks are told; once that is too much, nothing is told.
  void tell_ranks(StagedWeights& staged, const Changes& changes) const;
  void stage_adapter(const Store& store, const SnapshotChain& chain, const LiveWeights& live, const std::function<std::string()>& base_sha256,
                     StagedWeights& staged, const Report& report) const;
  void stage_weights(const SnapshotChain& chain, const LiveWeights& live, StagedWeights& staged, const Report& report) const;
  std::shared_ptr<Runtime> runtime_;
  std::shared_ptr<Executor> executor_;
  const SwapMemory memory_;
  const std::shared_ptr<WeightPool::Part> part_;
  const std::int64_t ranks_;
};

}  // namespace lockstep
