// Samplers' checkpoints that are snapshots of a store (serving/snapshot_port.h): they are made one after the other on a thread of their own, each when the ones
// before it are there. The training store has a document of kind "held" for every channel that holds one, written before the channel is, so that what a
// kill leaves without a checkpoint is released by the next start. Its lock is held for moments, and nobody is called under it. Any thread.
//   snapshots.save(weights, "step-3", [](const SavedSnapshot* saved, std::exception_ptr error) { ... });   snapshots.release(record);
#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "host/training_commons.h"
#include "serving/snapshot_port.h"
#include "trained/trained_model.h"

namespace lockstep {

class CheckpointSnapshots {
 public:
  static constexpr std::size_t kMostWaiting = 256;  // saves that wait, each with weights
  explicit CheckpointSnapshots(TrainingCommons& commons);
  ~CheckpointSnapshots();  // finishes all
  CheckpointSnapshots(const CheckpointSnapshots&) = delete;
  CheckpointSnapshots& operator=(const CheckpointSnapshots&) = delete;

  // Whether this server publishes.
  bool on() const { return port_ != nullptr; }
  // Makes a snapshot, and calls back on the thread when the store has it (null and an error: it has not). A callback that keeps no record of it releases it.
  // Error resource_exhausted: too many wait.
  using Done = std::function<void(const SavedSnapshot* saved, std::exception_ptr error)>;
  void save(const SamplerWeights& weights, const std::string& name, Done done);
  // One more channel for the snapshot of a copied checkpoint; waits for the store. Its name.
  std::string hold(const CheckpointRecord& copied);
  // Removes the channel of a checkpoint that is gone, soon; after the next start where the store cannot be reached.
  void release(const CheckpointRecord& gone) { release(gone.channel, gone.snapshot); }
  void release(const std::string& channel, const std::string& snapshot);
  // The same, and waits for the store. Errors: the store's.
  void release_now(const std::string& channel, const std::string& snapshot);
  // At the start: releases what no checkpoint has.
  void release_all_but(const std::set<std::string>& channels);
  // The values of a checkpoint. Errors: those of SnapshotPort::read; invalid_argument where this server does not publish.
  WeightImages read(const CheckpointRecord& from, const Manifest& manifest) const;
  // Waits until all that was asked for is done.
  void finish();

 private:
  void post(std::function<void()> work, std::size_t most);
  void run();
  SnapshotPort& port() const;
  // Notes channels down as they are written; the one that `made` returns stays noted.
  template <class F>
  auto noting(const F& made);

  TrainingCommons& commons_;
  const std::shared_ptr<SnapshotPort> port_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool busy_ = false, stopping_ = false;
  std::thread thread_;  // last, so that it finds all others
};

}  // namespace lockstep
