// The registry of samplers: what clients sample from. A sampler is the base, a checkpoint, a snapshot of a model, or a model's latest save for
// sampling. Weights of snapshots stay in memory while there is room; the least recently sampled are written to disk by a thread of its own
// (host/sampler_spills.h) and read back with the same bits. It has its own lock, under which nothing waits for a disk. Owners do not see each
// other's. Any thread, except functions that take an OnExecutor.
//   const std::string id = samplers.create(owner, session, 0, "", path); request.weights = samplers.weights(owner, id).weights;
#pragma once
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/guarded.h"
#include "host/checkpoint_files.h"
#include "host/checkpoint_weights.h"
#include "host/memory_room.h"
#include "host/record_writer.h"
#include "host/sampler_spills.h"
#include "host/sessions.h"

namespace lockstep {

struct HeldWeights {
  SamplerWeights weights;
  SamplerRecord record;
};

class Samplers {
 public:
  // Loads the store's records.
  Samplers(TrainingCommons& commons, Sessions& sessions, Checkpoints& checkpoints, CheckpointFiles& files, CheckpointWeights& saved, MemoryRoom& memory);

  // Makes a sampler of a checkpoint (path not empty) or the base. Errors: not_found, cancelled, resource_exhausted, invalid_argument.
  std::string create(const std::string& owner, const std::string& session, std::int64_t number, const std::string& base_model, const std::string& path);
  // Makes a sampler of a model's present weights; null: one that follows the model's inflight saves. Returns its id. Error resource_exhausted.
  std::string add(SamplerRecord record, SamplerWeights weights);
  // Errors not_found: it may be removed at any time (host/retention.h).
  SamplerRecord find(const std::string& owner, const std::string& id) const;
  bool contains(const std::string& id) const;  // anyone's
  std::vector<SamplerRecord> all(const std::string& owner, const std::string& session) const;
  std::int64_t join(const std::string& owner, const std::string& id);  // 1, 2, ...
  void use(const std::string& owner, const std::string& id);           // renews it and its session
  // Not on the executor's thread, which reads weights from disk.
  SamplerWeights weights(const std::string& owner, const std::string& id);

  // Sets a model's newest inflight save; removes it.
  void set_inflight(const OnExecutor& on, const std::string& model, SamplerWeights weights);
  void drop_inflight(const OnExecutor& on, const std::string& model);

  SamplerSpills& spills() { return spills_; }
  // Of weights in memory that may go to disk.
  std::int64_t bytes_held() const;
  std::vector<std::string> least_used() const;                   // first
  std::optional<HeldWeights> held(const std::string& id) const;  // nothing: it has none
  // Notes that its weights are on disk, in `folder` if no checkpoint has them. False: it was removed meanwhile.
  bool let_go(const std::string& id);
  std::filesystem::path folder(const std::string& id) const { return commons_.options.state / "samplers" / folder_of_id(id); }
  void clear(const OnExecutor& on);  // frees all weights: the server stops

  // Removes up to `most` samplers of removed sessions, and snapshots that were not sampled for long.
  std::vector<SamplerRecord> remove_forgotten(const OnExecutor& on, std::size_t most);
  std::set<std::string> sessions() const;  // that have one

 private:
  using Clock = std::chrono::steady_clock;
  struct Sampler {
    SamplerRecord record;
    SamplerWeights weights;  // null: on disk, or the base's
    std::uint64_t used = 0;  // order
    Clock::time_point used_at{};
    std::int64_t joined = 0;
  };
  struct State {
    std::map<std::string, Sampler> samplers;
    std::map<std::pair<std::string, std::int64_t>, std::string> by_number;  // session, number
    std::map<std::string, SamplerWeights> inflight;                         // by model
    std::uint64_t clock = 0;
    Sampler& at(const std::string& owner, const std::string& id);
  };
  using Taken = std::vector<std::map<std::string, Sampler>::node_type>;
  void check_room(const std::string& owner) const;
  void take_forgotten(std::size_t most, Taken& taken);

  TrainingCommons& commons_;
  Sessions& sessions_;
  Checkpoints& checkpoints_;
  CheckpointFiles& files_;
  CheckpointWeights& saved_;
  MemoryRoom& memory_;
  RecordWriter writer_;  // of samplers in the store
  mutable Guarded<State> state_;
  SamplerSpills spills_;  // the last member: its thread uses the others
};

}  // namespace lockstep
