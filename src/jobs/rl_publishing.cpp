#include "jobs/rl_publishing.h"

#include "base/error.h"
#include "fleet/channel_fleet.h"

namespace lockstep {

RlPublishing::RlPublishing(RlStack& stack, const PublishSettings& settings, const std::string& model) : stack_(stack) {
  const OpenedModel& opened = stack.opened();
  const ChannelPlace place = parse_channel_place("publish", settings.place);
  publisher_ = std::make_unique<Publisher>(open_store(place.store, true), place.channel, model_texts(model), opened.runtime, stack.executor(),
                                           PublisherOptions{.transition = settings.transition});
  if (!stack.trainer().weights_for(opened.runtime).adapter) return;  // all parameters are trained
  if (!opened.reader) fail(ErrorCode::unsupported, "an adapter over weights of no file cannot be published");
  base_ = {opened.reader->weights_sha256(), opened.name};
}

nlohmann::ordered_json RlPublishing::publish() {
  const SamplerWeights now = stack_.trainer().weights_for(stack_.opened().runtime);
  const PublishedSnapshot published = now.adapter ? publisher_->publish(now.adapter, base_) : publisher_->publish(now.weights);
  return {{"publish_bytes", published.written.payload_bytes + published.written.file_bytes},
          {"publish_full_bytes", published.written.full_bytes},
          {"publish_seconds", published.seconds},
          {"publish_sequence", published.sequence}};
}

}  // namespace lockstep
