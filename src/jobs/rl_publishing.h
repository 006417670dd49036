// Publishes what a reinforcement learning run trains, after each step, to a channel that servers follow (`lockstep serve --follow`): the weights, or
// the adapter. The weights of a step are encoded and uploaded beside the next step's rollouts: they are held, not copied, and no later step changes them.
// One thread.
//   RlPublishing publishing(stack, {.place = "/mnt/weights/chat"}, "models/countdown-glm");   metrics.update(publishing.publish(false));
#pragma once
#include <future>

#include "fleet/publisher.h"
#include "runs/rl_stack.h"

namespace lockstep {

struct PublishSettings {
  std::string place;                     // STORE/CHANNEL; empty: nothing is published
  std::string transition = "immediate";  // or staged
};

class RlPublishing {
 public:
  // `model`: the folder that training started from. Errors: those of open_store.
  RlPublishing(RlStack& stack, const PublishSettings& settings, const std::string& model);
  // Waits for the publication before, and begins that of the weights as they are; `wait`: for this one too. Throws what went wrong with one that it
  // waited for; the next one then has all that this one had.
  // Of metrics.jsonl, since the call before: publish_bytes (payloads and files that the store got), publish_seconds (that were waited here) and
  // publish_beside_seconds (that publications took, from their begin). publish_full_bytes and publish_sequence are the newest snapshot's.
  nlohmann::ordered_json publish(bool wait);
  // Waits for what was begun. Throws as publish.
  void finish();

 private:
  RlStack& stack_;
  std::unique_ptr<Publisher> publisher_;
  Publisher::AdapterBase base_;
  std::uint64_t bytes_ = 0, full_bytes_ = 0, sequence_ = 0;
  double beside_seconds_ = 0;
  std::future<PublishedSnapshot> running_;  // last member: its thread ends before the others go
};

}  // namespace lockstep
