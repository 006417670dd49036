// Samplers' checkpoints of a training server as snapshots of a store: weights and adapters are chains of deltas (fleet/publisher.h), and a channel of the
// checkpoint's name holds each, by which replicas are pointed at it. Any thread; of calls of save one after the other.
//   auto snapshots = std::make_shared<SamplerSnapshots>(std::move(publisher), opened.name, opened.reader);   options.snapshots = snapshots;
#pragma once
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>

#include "checkpoint/model_reader.h"
#include "fleet/publisher.h"
#include "serving/snapshot_port.h"

namespace lockstep {

class SamplerSnapshots : public SnapshotPort {
 public:
  // `base_name`: what adapter_config.json calls the weights under adapters; `reader`: of their files; `downloads`: a folder for what is read of a store
  // behind a network; `threads` read a snapshot.
  SamplerSnapshots(std::unique_ptr<Publisher> publisher, std::string base_name, std::shared_ptr<const ModelReader> reader, std::filesystem::path downloads,
                   int threads = 2);
  SavedSnapshot save(const std::shared_ptr<const WeightSet>& weights, const std::shared_ptr<const AdapterWeights>& adapter, const std::string& name,
                     const Note& note) override;
  void tidy() override;
  std::string hold(const std::string& id, const std::string& name, const Note& note) override;
  void release(const std::string& channel, const std::string& id) override;
  WeightImages read(const std::string& id, const Manifest& manifest) const override;

 private:
  std::string hold_locked(const std::string& id, const std::string& name, const Note& note) const;
  WeightImages read_near(const Store& store, const std::string& id, const Manifest& manifest) const;
  std::mutex mutex_;  // of save and tidy
  mutable std::mutex downloading_;
  const std::unique_ptr<Publisher> publisher_;
  Publisher::AdapterBase base_;
  const std::shared_ptr<const ModelReader> reader_;
  const std::filesystem::path downloads_;
  const int threads_;
};

}  // namespace lockstep
