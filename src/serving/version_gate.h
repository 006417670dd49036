// The interface of a check that weights from a channel must pass before this process serves them. The channel's follower calls it (fleet/follower.h);
// api/openai/channel_gate.h implements it, since it knows the aliases.
//   const std::string terms = gate->terms();   if (const std::string why = gate->refuses(id, weights, adapter, stop); !why.empty()) stay(why);
//   if (!gate->go_live(terms, swap)) ask_again();
// One thread, not the executor's.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "base/stop_token.h"

namespace lockstep {

struct WeightSet;
struct AdapterWeights;

class VersionGate {
 public:
  virtual ~VersionGate() = default;
  // A text that names the conditions (the gates of the aliases that lead here) as they are now: equal texts, equal conditions. Empty: there are none, and
  // every version may go live.
  virtual std::string terms() const = 0;
  // Tests the snapshot's weights, which are on the device already (adapter null: none). Returns in one sentence why they must not go live; empty: they may.
  // Blocks while prompts are answered under these weights. Error cancelled once `stop` is set.
  virtual std::string refuses(const std::string& snapshot, std::shared_ptr<const WeightSet> weights, std::shared_ptr<const AdapterWeights> adapter,
                              const StopToken& stop) = 0;
  // Runs `swap`, which makes the weights live, if the conditions are still those that `terms` named, and keeps them from changing meanwhile. False: they
  // have changed, and nothing was done; ask refuses() again. Throws what `swap` throws.
  virtual bool go_live(const std::string& terms, const std::function<void()>& swap) = 0;
};

}  // namespace lockstep
