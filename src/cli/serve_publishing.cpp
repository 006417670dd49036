#include "cli/serve_publishing.h"

#include "base/error.h"
#include "base/log.h"
#include "trained/trained_model.h"

namespace lockstep {
namespace {
constexpr std::size_t kMostPublications = 256;  // that wait, each with weights
}

ServePublishing::ServePublishing(const PublishSettings& settings, const std::string& quorum, const OpenedModel& opened, std::shared_ptr<Executor> executor,
                                 const std::string& model)
    : parts_(std::make_shared<Parts>()), worker_(std::make_shared<Worker>(kMostPublications, 0)) {
  const ChannelPlace at = parse_channel_place("publish", settings.place);
  std::shared_ptr<Store> store = open_store(at.store, true);
  fleet_ = std::make_shared<ChannelFleet>(store, at.channel, parse_quorum(quorum), settings.transition);
  parts_->publisher = std::make_unique<Publisher>(std::move(store), at.channel, model_texts(model), opened.runtime, std::move(executor), PublisherOptions{});
  parts_->base.name = opened.name;
  parts_->reader = opened.reader;
}

void ServePublishing::add_to(TrainingServiceOptions& options) const {
  options.fleet = fleet_;
  options.publish = [held = std::weak_ptr<Parts>(parts_), worker = std::weak_ptr<Worker>(worker_)](const std::string& name, const SamplerWeights& weights,
                                                                                                   const std::function<void(std::exception_ptr)>& done) {
    const auto work = [held, name, weights, done] {
      const std::shared_ptr<Parts> parts = held.lock();
      try {
        if (!parts) fail(ErrorCode::cancelled, "the server is stopping; '{}' was saved, and not published", name);
        if (parts->base.sha256.empty() && weights.adapter) parts->base.sha256 = base_sha256(parts->reader);
        const PublishedSnapshot published =
            weights.adapter ? parts->publisher->publish(weights.adapter, parts->base, name) : parts->publisher->publish(weights.weights, name);
        log_info("published", {{"name", name}, {"snapshot", published.written.id}, {"bytes", published.written.payload_bytes}, {"seconds", published.seconds}});
      } catch (...) {
        return done(std::current_exception());
      }
      done(nullptr);
    };
    const std::shared_ptr<Worker> thread = worker.lock();
    if (!thread || !thread->post(work))
      done(std::make_exception_ptr(Error(ErrorCode::resource_exhausted, fmt::format("'{}' was saved, and not published: too many wait", name))));
  };
}

}  // namespace lockstep
