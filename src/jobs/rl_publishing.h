// Publishes what a reinforcement learning run trains, after each step, to a channel that servers follow (`lockstep serve --follow`): the weights, or
// the adapter. One thread.
//   RlPublishing publishing(stack, {.place = "/mnt/weights/chat"}, "models/countdown-glm");   metrics.update(publishing.publish());
#pragma once
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
  // Of metrics.jsonl: publish_bytes (payloads and files that the store got), publish_full_bytes, publish_seconds, publish_sequence.
  nlohmann::ordered_json publish();

 private:
  RlStack& stack_;
  std::unique_ptr<Publisher> publisher_;
  Publisher::AdapterBase base_;
};

}  // namespace lockstep
