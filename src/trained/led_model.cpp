#include "trained/led_model.h"

#include <csignal>

#include "base/error.h"
#include "base/log.h"
#include "train/sequence_record.h"
#include "trained/model_calls.h"

namespace lockstep {

namespace {

// Tells the others of each call that ranks make together, then makes it.
class LedModel final : public TrainedModel {
 public:
  LedModel(const TrainedBase& base, const TrainedSettings& settings, ProcessMail& mail) : mail_(mail) {
    tell(ModelCall::make, [&](ByteWriter& out) { put_options(out, base.options), put_settings(out, settings); });
    own_ = make_full_model_over(base, settings, make_ranks(base.options.ranks));
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
  void save_gradients(const std::filesystem::path&) override { refuse("gradients on disk"); }
  void load_gradients(const std::filesystem::path&) override { refuse("gradients on disk"); }
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
  ForwardCounts work() const override { return tell(ModelCall::work), own_->work(); }

 private:
  template <class F>
  void tell(ModelCall call, const F& put) const {
    ByteWriter out;
    out.value(call);
    put(out);
    mail_.call(out.bytes());
  }
  void tell(ModelCall call) const {
    tell(call, [](ByteWriter&) {});
  }
  [[noreturn]] void refuse(const char* what) const { fail(ErrorCode::unsupported, "{} over {} processes, allowed is one process", what, mail_.processes()); }

  ProcessMail& mail_;
  std::unique_ptr<TrainedModel> own_;
};

// What a process other than the first does.
class CallFollower {
 public:
  explicit CallFollower(ProcessMail& mail) : mail_(mail) {}
  // Until process 0 ends. An error in a call is told to all by the ranks, or is the same in all, and process 0 says it.
  void follow() {
    while (const std::optional<std::string> bytes = mail_.next_call()) {
      try {
        ByteReader in(*bytes);
        perform(in);
      } catch (const std::exception& e) {
        log_debug("a call of process 0 failed", {{"process", mail_.process()}, {"error", e.what()}});
      }
    }
  }

 private:
  void perform(ByteReader& in) {
    const auto call = in.value<ModelCall>();
    if (call == ModelCall::open) return open(in);
    if (call == ModelCall::make) return make(in);
    if (call == ModelCall::forget) return model_.reset();
    if (!model_) fail(ErrorCode::internal, "process 0 makes call {} of a model that is not there", static_cast<int>(call));
    switch (call) {
      case ModelCall::forward_backward: {
        const auto data = taken_sequences(in);
        const auto loss = in.value<LossOptions>();
        model_->forward_backward(data, loss, in.value<IndexTraining>());
        return;
      }
      case ModelCall::begin: {
        const auto plan = in.value<BatchPlan>();
        const auto loss = in.value<LossOptions>();
        return model_->begin(plan, loss, in.value<IndexTraining>());
      }
      case ModelCall::add: {
        const auto places = in.values<std::size_t>();
        return model_->add(places, taken_sequences(in));
      }
      case ModelCall::finish:
        model_->finish();
        return;
      case ModelCall::drop:
        return model_->drop();
      case ModelCall::score:
        model_->score(taken_sequences(in));
        return;
      case ModelCall::optim_step:
        model_->optim_step(in.value<AdamParameters>());
        return;
      case ModelCall::sampler_weights:
        model_->sampler_weights();
        return;
      case ModelCall::master_images:
        model_->master_images();
        return;
      case ModelCall::state:
        model_->state();
        return;
      case ModelCall::restore:
        return model_->restore(taken_state(in));
      case ModelCall::work:
        model_->work();
        return;
      default:
        fail(ErrorCode::internal, "process 0 makes call {}, which there is not", static_cast<int>(call));
    }
  }
  // On the ranks, so that all learn of an error.
  void open(ByteReader& in) {
    model_.reset();
    const ModelSource source = taken_source(in);
    const std::string digest = in.text();
    make_ranks(rank_layout(source.runtime.ranks))->run([&](int local) {
      if (local > 0) return;
      base_ = {};
      base_.opened = source.untrained ? open_untrained_model(source.runtime, source.seed, source.deviation) : open_model(source.runtime);
      if (const std::string own = base_.opened.runtime->profile.digest(); own != digest)
        fail(ErrorCode::invalid_argument, "the profile '{}' has the digest {} in this process and {} in process 0; allowed is one program",
             source.runtime.profile, own, digest);
    });
  }
  void make(ByteReader& in) {
    model_.reset();
    base_.options = taken_options(in);
    model_ = make_full_model_over(base_, taken_settings(in), make_ranks(base_.options.ranks));
  }

  ProcessMail& mail_;
  TrainedBase base_;
  std::unique_ptr<TrainedModel> model_;
};

}  // namespace

bool follow_processes(const std::string& transport) {
  join_processes(transport);
  ProcessMail* mail = joined_mail();
  if (!mail || mail->process() == 0) return false;
  // mpirun passes signals on to all: process 0 saves, and the others go when it has gone.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_IGN);
  CallFollower(*mail).follow();
  return true;
}

void open_beside(const ModelSource& source) {
  ProcessMail* mail = joined_mail();
  if (!mail) return;
  const std::unique_ptr<Ranks> ranks = make_ranks(rank_layout(source.runtime.ranks));
  ByteWriter out;
  out.value(ModelCall::open);
  put_source(out, source);
  out.text(profile_by_name(source.runtime.profile).digest());
  mail->call(out.bytes());
  ranks->run([](int) {});
}

std::unique_ptr<TrainedModel> make_led_model(const TrainedBase& base, const TrainedSettings& settings, ProcessMail& mail) {
  return std::make_unique<LedModel>(base, settings, mail);
}

}  // namespace lockstep
