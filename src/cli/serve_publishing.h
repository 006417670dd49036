// Sampler checkpoints of a training server as snapshots in a store, for replicas that follow it (`lockstep serve --training --publish`).
//   ServePublishing publishing(settings, "all", opened, executor, folder);   publishing.add_to(training_options);
// Snapshots are made on a thread of their own, one after another. Destroy this object before the training service.
#pragma once
#include "api/worker.h"
#include "cli/follow_options.h"
#include "http/training_server.h"

namespace lockstep {

class ServePublishing {
 public:
  // `model`: the folder that is served. Errors: those of open_store; invalid_argument for a place that is not STORE/CHANNEL.
  ServePublishing(const PublishSettings& settings, const std::string& quorum, const OpenedModel& opened, std::shared_ptr<Executor> executor,
                  const std::string& model);
  void add_to(TrainingServiceOptions& options) const;

 private:
  struct Parts {
    std::unique_ptr<Publisher> publisher;
    Publisher::AdapterBase base;
    std::shared_ptr<const ModelReader> reader;
  };
  std::shared_ptr<Parts> parts_;
  std::shared_ptr<ChannelFleet> fleet_;
  std::shared_ptr<Worker> worker_;  // last member, so that its thread ends first
};

}  // namespace lockstep
