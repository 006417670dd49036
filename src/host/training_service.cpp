#include "host/training_service.h"

#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/log.h"

namespace lockstep {

TrainingService::TrainingService(std::shared_ptr<TrainingBase> base, std::shared_ptr<GenerationService> generation, const TrainingServiceOptions& options)
    : commons_(std::move(base), std::move(generation), options),
      memory_(commons_),
      sessions_(commons_.store, commons_.limit_of(options.max_sessions), options.clock),
      models_(commons_),
      promoted_(commons_.store, "promoted", commons_.limit_of(ControlPlane::kMostRecords)),
      snapshots_(commons_),
      checkpoints_(commons_, sessions_, promoted_, snapshots_),
      files_(commons_, checkpoints_, snapshots_, memory_),
      weights_(commons_, checkpoints_, files_, memory_),
      custom_losses_(commons_, sessions_),
      samplers_(commons_, sessions_, checkpoints_, files_, weights_, memory_),
      gradients_(commons_, models_, memory_),
      resting_(commons_, sessions_, models_, memory_, gradients_),
      tools_{commons_, memory_, gradients_, resting_},
      lanes_(tools_, sessions_, models_),
      model_life_(commons_, {sessions_, models_, lanes_, resting_, gradients_, memory_, checkpoints_, files_, samplers_, promoted_}),
      control_(commons_, {sessions_, models_, checkpoints_, files_, weights_, promoted_,
                          [this](const std::string& owner, const std::string& session) { model_life_.drop_of_session(owner, session); }}),
      retention_(commons_, {sessions_, models_, model_life_, resting_, samplers_, checkpoints_, custom_losses_}),
      operations_(tools_, {lanes_, models_, custom_losses_, checkpoints_, files_, snapshots_, weights_, samplers_, control_, retention_}),
      sampling_(commons_, sessions_, samplers_),
      waiting_reasons_(commons_, models_, samplers_),
      session_life_(commons_, sessions_, retention_) {
  TrainingBase& shared = *commons_.base;
  shared.options.kept = std::make_shared<KeptPasses>(options.reuse_bytes, memory_.limited() ? shared.ledger : nullptr);
  commons_.metadata.add_source([this](const MetadataRoom::Count& count) { sessions_.each_metadata(count); });
  commons_.metadata.add_source([this](const MetadataRoom::Count& count) { models_.each_metadata(count); });
  commons_.metadata.add_source([this](const MetadataRoom::Count& count) { checkpoints_.each_metadata(count); });
  commons_.metadata.add_source([this](const MetadataRoom::Count& count) { custom_losses_.each_bytes(count); });
  memory_.add_source([this](const OnExecutor&) { return commons_.base->options.kept->drop_oldest(); });
  if (shared.options.kept_forwards) memory_.add_source([this](const OnExecutor&) { return commons_.base->options.kept_forwards->drop_one(); });
  memory_.add_source([this](const OnExecutor& on) { return weights_.drop_oldest(on); });
  memory_.add_source([this](const OnExecutor& on) { return samplers_.spills().spill_oldest(on); });
  memory_.add_source([this](const OnExecutor& on) { return resting_.rest_one(on); }, [this](const OnExecutor& on) { return resting_.movable_bytes(on); });
  if (const std::size_t models = models_.every().size(); models > 0)
    log_info("training state read", {{"sessions", sessions_.count()}, {"models", models}, {"checkpoints", checkpoints_.count()}});
}

TrainingService::~TrainingService() { stop(); }

void TrainingService::stop() {
  if (!commons_.intake.close()) return;
  // What has been acknowledged is done; a gap in the numbers is never filled any more.
  while (commons_.queue->waiting() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  snapshots_.finish();
  commons_.futures.stop();
  commons_.feed.stop();
  try {
    run_on(*commons_.base->executor, WorkClass::training, [this](const OnExecutor& on) { write_down(on); }).get();
  } catch (const std::exception& e) {
    log_error("the training service did not stop cleanly", {{"reason", e.what()}});
  }
}

void TrainingService::write_down(const OnExecutor& on) {
  for (const std::shared_ptr<HostedModel>& model : models_.every()) {
    try {
      resting_.write_down(on, *model);
      std::optional<ModelRecord> record;
      {
        const auto state = model->state.lock();
        if (std::exchange(state->record.open_gradients, false))
          log_warning("gradients that no optim_step took are not kept over a restart", {{"model", model->id}});
        if (state->lost.empty()) record = state->record;
      }
      if (record) models_.store(*record);  // its numbers, also where nothing else changed
    } catch (const std::exception& e) {
      log_error("a model could not be written down", {{"model", model->id}, {"reason", e.what()}});
    }
    lanes_.forget_waiting(on, *model, {});
    resting_.let_go(on, *model);
  }
  samplers_.spills().spill(on, 0);
  samplers_.clear(on);
  weights_.clear(on);
}

}  // namespace lockstep
