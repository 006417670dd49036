#include "trained/led_model.h"

#include <atomic>

#include "base/error.h"
#include "model/value_head.h"
#include "parallel/follow_calls.h"
#include "train/sequence_record.h"
#include "train/teacher_head.h"
#include "trained/led_layer.h"
#include "trained/model_calls.h"

namespace lockstep {

namespace {

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

[[noreturn]] void refuse_over(const ProcessMail& mail, const char* what) {
  fail(ErrorCode::unsupported, "{} over {} processes, allowed is one process", what, mail.processes());
}

// The teacher whose head the others have: each is sent once, before the first call whose sequences it teaches, and is kept until the next.
class ToldTeacher {
 public:
  ToldTeacher(ProcessMail& mail, std::uint64_t model) : mail_(mail), model_(model) {}
  void tell(const std::vector<TrainSequence>& data) {
    const TeacherHead* head = data.empty() ? nullptr : data[0].teacher.get();  // of all of them
    if (!head || head->weights->identity == weights_) return;
    tell_call(mail_, ModelCall::teacher, [&](ByteWriter& out) { out.value(model_), put_teacher_head(out, *head); });
    weights_ = head->weights->identity;
  }

 private:
  ProcessMail& mail_;
  const std::uint64_t model_;  // its number
  std::uint64_t weights_ = 0;  // of the teacher; 0: none was told
};

// Tells the others of each call that ranks make together, by the model's number, then makes it.
class LedModel final : public TrainedModel {
 public:
  LedModel(const TrainedBase& base, const TrainedSettings& settings, ProcessMail& mail) : mail_(mail), number_(next_number()), trains_(!settings.base_only) {
    tell(ModelCall::make, [&](ByteWriter& out) {
      out.value(has_value_head(*base.opened.model));
      put_options(out, base.options), put_settings(out, settings), out.value(base.frozen != nullptr);
    });
    try {
      own_ = make_trained_model_here(base, settings);
    } catch (...) {
      tell_gone(mail_, ModelCall::forget, number_);
      throw;
    }
  }
  ~LedModel() override { tell_gone(mail_, ModelCall::forget, number_); }

  ForwardBackwardResult forward_backward(const std::vector<TrainSequence>& data, const LossOptions& loss, const IndexTraining& index) override {
    teacher_.tell(data);
    tell_training(ModelCall::forward_backward, [&](ByteWriter& out) { put_sequences(out, data), out.value(loss), out.value(index); });
    return own_->forward_backward(data, loss, index);
  }
  void begin(const BatchPlan& plan, const LossOptions& loss, const IndexTraining& index) override {
    tell_training(ModelCall::begin, [&](ByteWriter& out) { out.value(plan), out.value(loss), out.value(index); });
    own_->begin(plan, loss, index);
  }
  void add(const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece) override {
    teacher_.tell(piece);
    tell_training(ModelCall::add, [&](ByteWriter& out) { out.values(places), put_sequences(out, piece); });
    own_->add(places, piece);
  }
  ForwardBackwardResult finish() override { return tell_training(ModelCall::finish), own_->finish(); }
  void drop() override { tell(ModelCall::drop), own_->drop(); }
  Unfinished unfinished() const override { return own_->unfinished(); }
  ParkedBatch save_gradients(const std::filesystem::path&) override { refuse_over(mail_, "gradients on disk"); }
  void load_gradients(const std::filesystem::path&, const ParkedBatch&) override { refuse_over(mail_, "gradients on disk"); }
  bool accumulates(std::size_t piece, std::size_t sequences) const override { return own_->accumulates(piece, sequences); }
  std::vector<std::vector<float>> score(const std::vector<TrainSequence>& piece) override {
    tell(ModelCall::score, [&](ByteWriter& out) { put_sequences(out, piece); });
    return own_->score(piece);
  }
  void evaluate(OpenBatch& batch, const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece) override {
    batch.check(places, piece);
    teacher_.tell(piece);
    tell(ModelCall::evaluate, [&](ByteWriter& out) { out.value(batch.loss()), put_sequences(out, piece); });
    own_->evaluate(batch, places, piece);
  }
  OptimResult optim_step(const AdamParameters& adam) override {
    tell_training(ModelCall::optim_step, [&](ByteWriter& out) { out.value(adam); });
    return own_->optim_step(adam);
  }
  std::int64_t steps() const override { return own_->steps(); }
  SamplerWeights sampler_weights() override { return tell(ModelCall::sampler_weights), own_->sampler_weights(); }
  std::unique_ptr<TrainedLayer> make_layer(const WeightImages& masters, const MtpTraining& training, const TrainerOptions& options) override {
    return make_led_layer({mail_, number_, *own_}, masters, training, options);
  }
  WeightImages master_images() override { return tell_training(ModelCall::master_images), own_->master_images(); }
  void restore(const TrainerState& state) override {
    tell_training(ModelCall::restore, [&](ByteWriter& out) { put_state(out, state); });
    own_->restore(state);
  }
  StateShares& shares() override { return shares_; }
  std::vector<float> state_image(StatePart part, std::size_t parameter) override {
    tell_training(ModelCall::state_image, [&](ByteWriter& out) { out.value(part), out.value(static_cast<std::uint64_t>(parameter)); });
    return own_->state_image(part, parameter);
  }
  bool has_state(StatePart part, std::size_t parameter) const override { return own_->has_state(part, parameter); }
  const Manifest& manifest() const override { return own_->manifest(); }
  const AdapterLayout* adapter() const override { return own_->adapter(); }
  ForwardCounts work() const override { return tell(ModelCall::work), own_->work(); }
  std::vector<RankUse> rank_uses() const override { return tell(ModelCall::rank_uses), own_->rank_uses(); }

 private:
  // The same for the calls of StateShares.
  class LedShares final : public StateShares {
   public:
    explicit LedShares(LedModel& model) : model_(model) {}
    void begin(const std::filesystem::path& folder) override {
      model_.tell_training(ModelCall::begin_shares, [&](ByteWriter& out) { out.text(std::filesystem::absolute(folder).string()); });
      own().begin(folder);
    }
    std::vector<ShareFileEnd> finish() override { return model_.tell_training(ModelCall::finish_shares), own().finish(); }
    void restore(const std::filesystem::path& folder, std::int64_t steps) override {
      model_.tell_training(ModelCall::restore_shares, [&](ByteWriter& out) { out.text(std::filesystem::absolute(folder).string()), out.value(steps); });
      own().restore(folder, steps);
    }

   private:
    StateShares& own() { return model_.own_->shares(); }
    LedModel& model_;
  };

  template <class F = void (*)(ByteWriter&)>
  void tell(
      ModelCall call, const F& put = [](ByteWriter&) {}) const {
    tell_call(mail_, call, [&](ByteWriter& out) { out.value(number_), put(out); });
  }
  // Of a base alone these are refused here, before anybody is told.
  template <class F = void (*)(ByteWriter&)>
  void tell_training(
      ModelCall call, const F& put = [](ByteWriter&) {}) const {
    if (trains_) tell(call, put);
  }
  ProcessMail& mail_;
  const std::uint64_t number_;
  const bool trains_;  // false: the base alone
  ToldTeacher teacher_{mail_, number_};
  std::unique_ptr<TrainedModel> own_;
  LedShares shares_{*this};
};

}  // namespace

std::unique_ptr<TrainedModel> make_led_model(const TrainedBase& base, const TrainedSettings& settings, ProcessMail& mail) {
  return std::make_unique<LedModel>(base, settings, mail);
}

}  // namespace lockstep
