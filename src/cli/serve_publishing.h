// `lockstep serve --training --publish`: samplers' checkpoints are snapshots of a store, for replicas that follow it.
//   add_publishing(settings, "all", opened, executor, folder, training_options);
#pragma once
#include "cli/follow_options.h"
#include "http/training_server.h"

namespace lockstep {

// `model`: the folder that is served. Errors: those of open_store; invalid_argument for a place that is not STORE/CHANNEL.
void add_publishing(const PublishSettings& settings, const std::string& quorum, const OpenedModel& opened, std::shared_ptr<Executor> executor,
                    const std::string& model, TrainingServiceOptions& options);

}  // namespace lockstep
