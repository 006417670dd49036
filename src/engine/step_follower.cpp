#include "engine/step_follower.h"

#include <utility>

#include "base/error.h"
#include "parallel/process_ranks.h"

namespace lockstep {

void StepFollower::perform(ByteReader& in) {
  const auto call = in.value<EngineCall>();
  if (call == EngineCall::make) {
    steps_.reset();
    under_way_.clear();
    known_ = {};
    layer_images_.clear();
    const EngineOptions options = taken_engine_options(in);
    steps_ = std::make_unique<RankSteps>(runtime_, options, std::make_unique<ProcessRanks>(options.ranks, mail_));
    return;
  }
  if (call == EngineCall::forget) {
    steps_.reset();
    under_way_.clear();
    known_ = {};
    return;
  }
  if (!steps_) fail(ErrorCode::internal, "process 0 makes call {} of an engine that is not there", static_cast<int>(call));
  switch (call) {
    case EngineCall::weights: {
      const auto version = in.value<std::uint64_t>();
      auto from = in.value<std::uint64_t>();
      if (from != 0) {  // the identity of what stands for them here
        const auto there = known_.weights.find(from);
        if (there == known_.weights.end()) fail(ErrorCode::internal, "process 0 changes weights ({}) that it has not sent", from);
        from = there->second->identity;
      }
      return steps_->begin_weights(version, from, in.value<bool>());
    }
    case EngineCall::image: {
      const auto id = in.value<ParameterId>();
      return steps_->take_parameter(id, taken_parameter(in));
    }
    case EngineCall::changes: {
      const auto id = in.value<ParameterId>();
      return steps_->take_changes(id, taken_changes(in));
    }
    case EngineCall::hold: {
      const auto identity = in.value<std::uint64_t>();
      const auto stand_in = std::make_shared<WeightSet>();
      stand_in->version = in.value<std::uint64_t>();
      known_.weights[identity] = stand_in;
      return steps_->hold_weights(stand_in, in.value<bool>());
    }
    case EngineCall::adapter: {
      const auto [adapter, images] = taken_adapter(in, runtime_.model->manifest(), known_);
      return steps_->take_adapter(adapter, images);
    }
    case EngineCall::gone:
      for (const std::uint64_t identity : in.values<std::uint64_t>()) known_.weights.erase(identity), known_.adapters.erase(identity);
      return;
    case EngineCall::layer_image:
      layer_images_.push_back(taken_parameter(in));
      return steps_->meet();
    case EngineCall::layer: {
      const MtpLayer* layer = runtime_.model->mtp();
      if (!layer) fail(ErrorCode::internal, "process 0 drafts with a layer of multi-token prediction, and the model here has none");
      if (const std::size_t wanted = layer->manifest().parameters().size(); layer_images_.size() != wanted)
        fail(ErrorCode::internal, "{} parameters of {} have come of the layer of multi-token prediction", layer_images_.size(), wanted);
      return steps_->set_mtp(upload(runtime_.backend, layer->manifest(), std::exchange(layer_images_, {}), runtime_.profile, in.value<std::uint64_t>()));
    }
    case EngineCall::states:
      return steps_->store(in.values<MtpSteps::PageState>());
    case EngineCall::guess: {
      const TakenGuess guess = taken_guess(in, known_);
      steps_->guess(guess.asked, guess.tokens);
      return;
    }
    case EngineCall::turn:
      return turn(in);
    case EngineCall::step: {
      under_way_.clear();
      const TakenStep step = taken_step(in, known_);
      StepResult result;
      return steps_->run(step.plan, step.wants, result);
    }
    default:
      fail(ErrorCode::internal, "process 0 makes call {} of an engine, which there is not", static_cast<int>(call));
  }
}

void StepFollower::turn(ByteReader& in) {
  const bool first = in.value<bool>(), enters = in.value<bool>();
  if (first) under_way_.clear();
  if (enters) under_way_.push_back(std::make_unique<TakenStep>(taken_step(in, known_)));
  const TakenStep* next = enters ? under_way_.back().get() : nullptr;
  StepResult result;
  if (steps_->turn(first, next ? &next->plan : nullptr, next ? &next->wants : nullptr, result)) under_way_.pop_front();
}

}  // namespace lockstep
