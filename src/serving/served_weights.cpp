#include "serving/served_weights.h"

#include <future>

#include "engine/engine.h"
#include "serving/guarded_call.h"

namespace lockstep {

void ServedWeights::use(const OnExecutor& on, const Swapped& now, InFlight in_flight) {
  engine_.at(on)->set_weights(now.weights, in_flight, now.layer);
  engine_.at(on)->take_rows();  // what new weights take is charged to nobody whose rows they waited for
  {
    const auto adapter = adapter_.lock();
    *adapter = now.adapter;
  }
  version_ = now.adapter ? now.adapter->version : now.weights->version;
}

void ServedWeights::set(std::shared_ptr<const WeightSet> weights, std::shared_ptr<const AdapterWeights> adapter, std::shared_ptr<const WeightSet> layer) {
  turns_.post([this, now = Swapped{std::move(weights), std::move(adapter), std::move(layer)}](const OnExecutor& on) {
    guarded_call("set_weights", [&] { use(on, now, InFlight::go_on); });
  });
}

void ServedWeights::swap(std::function<Swapped(const OnExecutor& on)> make, const SnapshotVersion& version, InFlight in_flight) {
  const auto done = std::make_shared<std::promise<void>>();
  std::future<void> result = done->get_future();
  turns_.post([this, make = std::move(make), version, in_flight, done](const OnExecutor& on) {
    try {
      const Swapped now = make(on);
      names_.add(version);
      use(on, now, in_flight);
      done->set_value();
    } catch (...) {
      done->set_exception(std::current_exception());
    }
  });
  result.get();
}

}  // namespace lockstep
