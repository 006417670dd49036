#include "jobs/rl_publishing.h"

#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/seconds.h"
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

void RlPublishing::finish() {
  if (!running_.valid()) return;
  const PublishedSnapshot published = running_.get();
  bytes_ += published.written.payload_bytes + published.written.file_bytes;
  full_bytes_ = published.written.full_bytes;
  sequence_ = published.sequence;
  beside_seconds_ += published.seconds;
}

nlohmann::ordered_json RlPublishing::publish(bool wait) {
  const auto began = std::chrono::steady_clock::now();
  finish();
  running_ = std::async(std::launch::async, [this, now = stack_.trainer().weights_for(stack_.opened().runtime)] {
    return now.adapter ? publisher_->publish(now.adapter, base_) : publisher_->publish(now.weights);
  });
  if (wait) finish();
  return {{"publish_bytes", std::exchange(bytes_, 0)},
          {"publish_full_bytes", full_bytes_},
          {"publish_seconds", seconds_since(began)},
          {"publish_beside_seconds", std::exchange(beside_seconds_, 0)},
          {"publish_sequence", sequence_}};
}

}  // namespace lockstep
