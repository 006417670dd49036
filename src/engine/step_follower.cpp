#include "engine/step_follower.h"

#include <utility>

#include "base/error.h"
#include "parallel/process_ranks.h"

namespace lockstep {

void StepFollower::perform(ByteReader& in) {
  const auto call = in.value<EngineCall>();
  if (call == EngineCall::make) {
    steps_.reset();
    images_.clear();
    known_ = {};
    const EngineOptions options = taken_engine_options(in);
    steps_ = std::make_unique<RankSteps>(runtime_, options, std::make_unique<ProcessRanks>(options.ranks, mail_));
    return;
  }
  if (call == EngineCall::forget) {
    known_ = {};
    return steps_.reset();
  }
  if (!steps_) fail(ErrorCode::internal, "process 0 makes call {} of an engine that is not there", static_cast<int>(call));
  switch (call) {
    case EngineCall::image:
      images_.resize(in.value<std::uint64_t>());  // those before it; what was left of others goes
      images_.push_back(in.values<float>());
      return steps_->meet();
    case EngineCall::weights: {
      const auto identity = in.value<std::uint64_t>();
      const auto stand_in = std::make_shared<WeightSet>();
      stand_in->version = in.value<std::uint64_t>();
      known_.weights[identity] = stand_in;
      return steps_->take_weights(stand_in, std::exchange(images_, {}), in.value<bool>());
    }
    case EngineCall::adapter: {
      const auto [adapter, images] = taken_adapter(in, runtime_.model->manifest(), known_);
      return steps_->take_adapter(adapter, images);
    }
    case EngineCall::gone:
      for (const std::uint64_t identity : in.values<std::uint64_t>()) known_.weights.erase(identity), known_.adapters.erase(identity);
      return;
    case EngineCall::step: {
      const TakenStep step = taken_step(in, known_);
      StepResult result;
      return steps_->run(step.plan, step.wants, result);
    }
    default:
      fail(ErrorCode::internal, "process 0 makes call {} of an engine, which there is not", static_cast<int>(call));
  }
}

}  // namespace lockstep
