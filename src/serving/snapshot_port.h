// Where a training server that publishes keeps its samplers' checkpoints: each is a snapshot of a store, held there by a channel, so that nobody prunes it.
// Implemented over a store by fleet/sampler_snapshots.h; nothing here knows one. Any thread.
//   const SavedSnapshot saved = port->save(weights, nullptr, "step-3", note);   images = port->read(saved.id, manifest);
//   port->release(saved.channel, saved.id);
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "model/adapter.h"
#include "model/weights.h"

namespace lockstep {

struct SavedSnapshot {
  std::string id, channel;
  std::int64_t bytes = 0;  // that it added to the store
};

class SnapshotPort {
 public:
  virtual ~SnapshotPort() = default;
  // Called before a channel is written, with its name and the snapshot's id: whoever notes them down can release it after a kill.
  using Note = std::function<void(const std::string& channel, const std::string& id)>;
  // Makes a snapshot of all weights, or of the adapter over them if it is not null, and a channel that holds it: `name`, or a name made up where that is taken.
  // Waits for the store. Not the executor's thread, which reads the weights. Errors: unsupported for weights in few bits; those of the store.
  virtual SavedSnapshot save(const std::shared_ptr<const WeightSet>& weights, const std::shared_ptr<const AdapterWeights>& adapter, const std::string& name,
                             const Note& note) = 0;
  // What later readers need, and a save does not wait for. As save.
  virtual void tidy() = 0;
  // Another channel that holds it; its name.
  virtual std::string hold(const std::string& id, const std::string& name, const Note& note) = 0;
  // Removes a channel that save or hold made, unless somebody else has moved it.
  virtual void release(const std::string& channel, const std::string& id) = 0;
  // The values of all its tensors as images of this manifest's parameters. Errors: not_found; corrupt_file, which names the tensor and both digests.
  virtual WeightImages read(const std::string& id, const Manifest& manifest) const = 0;
};

}  // namespace lockstep
