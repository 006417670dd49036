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
  // What would be asked now, as a word that is another one when that is another; empty: nothing.
  virtual std::string terms() const = 0;
  // Why weights of the snapshot, on the device already, must not go live, in one sentence; empty: they may. Takes as long as their answers take. `adapter`: null:
  // none. Error cancelled.
  virtual std::string refuses(const std::string& snapshot, std::shared_ptr<const WeightSet> weights, std::shared_ptr<const AdapterWeights> adapter,
                              const StopToken& stop) = 0;
  // Runs `swap`, with no change of terms meanwhile; false: they are others already, and nothing was done. Throws what `swap` throws.
  virtual bool go_live(const std::string& terms, const std::function<void()>& swap) = 0;
};

}  // namespace lockstep
