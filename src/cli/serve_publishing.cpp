#include "cli/serve_publishing.h"

#include "fleet/sampler_snapshots.h"

namespace lockstep {
namespace {
constexpr std::uint64_t kWholeEvery = 64;  // deltas: so many passes over the weights are some seconds for a model of 135 million
}

void add_publishing(const PublishSettings& settings, const std::string& quorum, const OpenedModel& opened, std::shared_ptr<Executor> executor,
                    const std::string& model, TrainingServiceOptions& options) {
  const ChannelPlace at = parse_channel_place("publish", settings.place);
  std::shared_ptr<Store> store = open_store(at.store, true);
  options.fleet = std::make_shared<ChannelFleet>(store, at.channel, parse_quorum(quorum), settings.transition);
  // Whole copies are for this server, which reads what it saved long ago: up no link.
  const PublisherOptions publishing{.whole_every = store->is_far() ? 0 : kWholeEvery};
  auto publisher = std::make_unique<Publisher>(std::move(store), at.channel, model_texts(model), opened.runtime, std::move(executor), publishing);
  options.snapshots = std::make_shared<SamplerSnapshots>(std::move(publisher), opened.name, opened.reader, options.state / "downloads");
}

}  // namespace lockstep
