#include "trained/led_layer.h"

#include "parallel/follow_calls.h"
#include "train/image_record.h"
#include "train/sequence_record.h"
#include "trained/model_calls.h"

namespace lockstep {

namespace {

class LedLayer final : public TrainedLayer {
 public:
  LedLayer(const LedTrunk& trunk, const WeightImages& masters, const MtpTraining& training, const TrainerOptions& options) : trunk_(trunk) {
    tell(ModelCall::make_layer, [&](ByteWriter& out) {
      put_images(out, masters), out.value(training);
      put_options(out, options), out.text(options.optimizer.name);
    });
    try {
      own_ = trunk_.own.make_layer(masters, training, options);
    } catch (...) {
      forget();
      throw;
    }
  }
  ~LedLayer() override { forget(); }

  MtpResult forward_backward(const std::vector<TrainSequence>& data, bool joint) override {
    tell(ModelCall::layer_forward_backward, [&](ByteWriter& out) { out.value(joint), put_sequences(out, data); });
    return own_->forward_backward(data, joint);
  }
  OptimResult optim_step(const AdamParameters& adam) override {
    tell(ModelCall::layer_optim_step, [&](ByteWriter& out) { out.value(adam); });
    return own_->optim_step(adam);
  }
  std::shared_ptr<const WeightSet> weights() override { return tell(ModelCall::layer_weights), own_->weights(); }
  WeightImages master_images() override { return tell(ModelCall::layer_images), own_->master_images(); }
  TrainerState state() override { return tell(ModelCall::layer_state), own_->state(); }
  void restore(const TrainerState& state) override {
    tell(ModelCall::layer_restore, [&](ByteWriter& out) { put_state(out, state); });
    own_->restore(state);
  }
  const MtpTraining& training() const override { return own_->training(); }

 private:
  template <class F = void (*)(ByteWriter&)>
  void tell(
      ModelCall call, const F& put = [](ByteWriter&) {}) const {
    tell_call(trunk_.mail, call, [&](ByteWriter& out) { out.value(trunk_.number), put(out); });
  }
  void forget() const { tell_gone(trunk_.mail, ModelCall::forget_layer, trunk_.number); }

  const LedTrunk trunk_;
  std::unique_ptr<TrainedLayer> own_;
};

}  // namespace

std::unique_ptr<TrainedLayer> make_led_layer(const LedTrunk& trunk, const WeightImages& masters, const MtpTraining& training, const TrainerOptions& options) {
  return std::make_unique<LedLayer>(trunk, masters, training, options);
}

}  // namespace lockstep
