#include "trained/led_model.h"

#include "base/error.h"
#include "base/log.h"
#include "parallel/follow_calls.h"
#include "train/sequence_record.h"
#include "trained/model_calls.h"

namespace lockstep {

namespace {

// Tells the others of each call that ranks make together, then makes it.
class LedModel final : public TrainedModel {
 public:
  LedModel(const TrainedBase& base, const TrainedSettings& settings, ProcessMail& mail) : mail_(mail) {
    if (settings.base_only) refuse("a reference");
    tell(ModelCall::make, [&](ByteWriter& out) { put_options(out, base.options), put_settings(out, settings); });
    own_ = make_trained_model_here(base, settings);
  }
  ~LedModel() override {
    try {
      tell(ModelCall::forget);
    } catch (const std::exception& e) {
      log_warning("the processes that follow were not told that a model is gone", {{"error", e.what()}});
    }
  }

  ForwardBackwardResult forward_backward(const std::vector<TrainSequence>& data, const LossOptions& loss, const IndexTraining& index) override {
    tell(ModelCall::forward_backward, [&](ByteWriter& out) { put_sequences(out, data), out.value(loss), out.value(index); });
    return own_->forward_backward(data, loss, index);
  }
  void begin(const BatchPlan& plan, const LossOptions& loss, const IndexTraining& index) override {
    tell(ModelCall::begin, [&](ByteWriter& out) { out.value(plan), out.value(loss), out.value(index); });
    own_->begin(plan, loss, index);
  }
  void add(const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece) override {
    tell(ModelCall::add, [&](ByteWriter& out) { out.values(places), put_sequences(out, piece); });
    own_->add(places, piece);
  }
  ForwardBackwardResult finish() override { return tell(ModelCall::finish), own_->finish(); }
  void drop() override { tell(ModelCall::drop), own_->drop(); }
  bool has_gradients() const override { return own_->has_gradients(); }
  bool in_batch() const override { return own_->in_batch(); }
  ParkedBatch save_gradients(const std::filesystem::path&) override { refuse("gradients on disk"); }
  void load_gradients(const std::filesystem::path&, const ParkedBatch&) override { refuse("gradients on disk"); }
  bool accumulates(std::size_t piece, std::size_t sequences) const override { return own_->accumulates(piece, sequences); }
  std::vector<std::vector<float>> score(const std::vector<TrainSequence>& piece) override {
    tell(ModelCall::score, [&](ByteWriter& out) { put_sequences(out, piece); });
    return own_->score(piece);
  }
  void evaluate(OpenBatch&, const std::vector<std::size_t>&, const std::vector<TrainSequence>&) override { refuse("a loss without a gradient"); }
  OptimResult optim_step(const AdamParameters& adam) override {
    tell(ModelCall::optim_step, [&](ByteWriter& out) { out.value(adam); });
    return own_->optim_step(adam);
  }
  std::int64_t steps() const override { return own_->steps(); }
  SamplerWeights sampler_weights() override { return tell(ModelCall::sampler_weights), own_->sampler_weights(); }
  WeightImages master_images() override { return tell(ModelCall::master_images), own_->master_images(); }
  TrainerState state() override { return tell(ModelCall::state), own_->state(); }
  void restore(const TrainerState& state) override {
    tell(ModelCall::restore, [&](ByteWriter& out) { put_state(out, state); });
    own_->restore(state);
  }
  std::vector<float> state_image(StatePart part, std::size_t parameter) override { return own_->state_image(part, parameter); }
  bool has_state(StatePart part, std::size_t parameter) const override { return own_->has_state(part, parameter); }
  const Manifest& manifest() const override { return own_->manifest(); }
  const AdapterLayout* adapter() const override { return own_->adapter(); }
  ForwardCounts work() const override { return tell(ModelCall::work), own_->work(); }

 private:
  template <class F = void (*)(ByteWriter&)>
  void tell(
      ModelCall call, const F& put = [](ByteWriter&) {}) const {
    tell_call(mail_, call, put);
  }
  [[noreturn]] void refuse(const char* what) const { fail(ErrorCode::unsupported, "{} over {} processes, allowed is one process", what, mail_.processes()); }

  ProcessMail& mail_;
  std::unique_ptr<TrainedModel> own_;
};

}  // namespace

std::unique_ptr<TrainedModel> make_led_model(const TrainedBase& base, const TrainedSettings& settings, ProcessMail& mail) {
  return std::make_unique<LedModel>(base, settings, mail);
}

}  // namespace lockstep
