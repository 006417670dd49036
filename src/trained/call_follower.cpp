// What processes other than the first do (trained/led_model.h): they open the model, make each call of process 0 on their ranks, and end with it.
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/log.h"
#include "engine/step_follower.h"
#include "parallel/follow_calls.h"
#include "train/image_record.h"
#include "train/sequence_record.h"
#include "train/teacher_head.h"
#include "trained/model_calls.h"
#include "trained/trained_layer.h"

namespace lockstep {

namespace {

// What a process other than the first does.
class CallFollower {
 public:
  CallFollower(ProcessMail& mail, const std::string& isa) : mail_(mail), isa_(isa) {}
  void perform(const std::string& call) {
    ByteReader in(call);
    if (!call.empty() && is_engine_call(static_cast<std::uint8_t>(call.front()))) perform_of_engine(in);
    else perform_of_model(in);
  }

 private:
  void perform_of_model(ByteReader& in) {
    const auto call = in.value<ModelCall>();
    if (call == ModelCall::open) return open(in);
    const auto number = in.value<std::uint64_t>();
    if (call == ModelCall::make) return make(number, in);
    if (call == ModelCall::forget) return forget(number);
    const auto found = models_.find(number);
    if (found == models_.end()) fail(ErrorCode::internal, "process 0 makes call {} of a model that is not there", static_cast<int>(call));
    TrainedModel* const model = found->second.get();
    if (is_layer_call(call)) return perform_of_layer(call, number, *model, in);
    switch (call) {
      case ModelCall::forward_backward: {
        const auto data = sequences(number, in);
        const auto loss = in.value<LossOptions>();
        model->forward_backward(data, loss, in.value<IndexTraining>());
        return;
      }
      case ModelCall::begin: {
        const auto plan = in.value<BatchPlan>();
        const auto loss = in.value<LossOptions>();
        return model->begin(plan, loss, in.value<IndexTraining>());
      }
      case ModelCall::add: {
        const auto places = in.values<std::size_t>();
        return model->add(places, sequences(number, in));
      }
      case ModelCall::finish:
        model->finish();
        return;
      case ModelCall::drop:
        return model->drop();
      case ModelCall::score:
        model->score(taken_sequences(in));
        return;
      case ModelCall::optim_step:
        model->optim_step(in.value<AdamParameters>());
        return;
      case ModelCall::sampler_weights:
        model->sampler_weights();
        return;
      case ModelCall::master_images:
        model->master_images();
        return;
      case ModelCall::restore:
        return model->restore(taken_state(in));
      case ModelCall::work:
        model->work();
        return;
      case ModelCall::rank_uses:
        model->rank_uses();
        return;
      case ModelCall::evaluate: {
        const auto loss = in.value<LossOptions>();
        const std::vector<TrainSequence> piece = sequences(number, in);
        std::vector<std::size_t> places(piece.size());
        std::iota(places.begin(), places.end(), std::size_t{0});
        OpenBatch batch({.sequences = piece.size()}, loss, {});
        return model->evaluate(batch, places, piece);
      }
      case ModelCall::state_image: {
        const auto part = in.value<StatePart>();
        model->state_image(part, in.value<std::uint64_t>());
        return;
      }
      case ModelCall::begin_shares:
        return model->shares().begin(in.text());
      case ModelCall::finish_shares:
        model->shares().finish();
        return;
      case ModelCall::restore_shares: {
        const std::string folder = in.text();
        return model->shares().restore(folder, in.value<std::int64_t>());
      }
      case ModelCall::teacher:
        teachers_[number].reset();  // before the next one is in memory
        teachers_[number] = std::make_shared<const TeacherHead>(taken_teacher_head(in, policy_.opened.runtime));
        return;
      default:
        fail(ErrorCode::internal, "process 0 makes call {}, which there is not", static_cast<int>(call));
    }
  }
  // Of the layer beside this model.
  void perform_of_layer(ModelCall call, std::uint64_t number, TrainedModel& model, ByteReader& in) {
    if (call == ModelCall::make_layer) return make_layer(number, model, in);
    const auto found = layers_.find(number);
    if (call == ModelCall::forget_layer) {
      if (found != layers_.end()) layers_.erase(found);  // it is not there where it could not be made
      return;
    }
    if (found == layers_.end()) fail(ErrorCode::internal, "process 0 makes call {} of a layer that is not there", static_cast<int>(call));
    TrainedLayer& layer = *found->second;
    switch (call) {
      case ModelCall::layer_forward_backward: {
        const auto joint = in.value<bool>();
        layer.forward_backward(taken_sequences(in), joint);
        return;
      }
      case ModelCall::layer_optim_step:
        layer.optim_step(in.value<AdamParameters>());
        return;
      case ModelCall::layer_weights:
        layer.weights();
        return;
      case ModelCall::layer_images:
        layer.master_images();
        return;
      case ModelCall::layer_state:
        layer.state();
        return;
      case ModelCall::layer_restore:
        return layer.restore(taken_state(in));
      default:
        fail(ErrorCode::internal, "process 0 makes call {}, which there is not", static_cast<int>(call));
    }
  }
  void make_layer(std::uint64_t number, TrainedModel& model, ByteReader& in) {
    const WeightImages masters = taken_images(in);
    const auto training = in.value<MtpTraining>();
    TrainerOptions options = taken_options(in);
    const std::string optimizer = in.text();
    const OptimizerFamily* family = optimizer_named(optimizer);
    if (!family) fail(ErrorCode::internal, "process 0 trains a layer with '{}', which there is not", optimizer);
    options.optimizer = *family;
    layers_[number] = model.make_layer(masters, training, options);
  }
  void forget(std::uint64_t number) {
    layers_.erase(number);
    models_.erase(number);
    teachers_.erase(number);
  }
  // With the teacher that process 0 has told of, where they have states of one.
  std::vector<TrainSequence> sequences(std::uint64_t number, ByteReader& in) {
    std::vector<TrainSequence> data = taken_sequences(in);
    for (TrainSequence& s : data)
      if (!s.teacher_states.empty()) s.teacher = teachers_[number];
    return data;
  }
  // Of the model that was opened last.
  void perform_of_engine(ByteReader& in) {
    if (!policy_.opened.runtime) fail(ErrorCode::internal, "process 0 makes a call of an engine before this process has opened a model");
    if (!engine_) engine_ = std::make_unique<StepFollower>(*policy_.opened.runtime, mail_);
    engine_->perform(in);
  }
  // On the ranks, so that all learn of an error.
  void open(ByteReader& in) {
    ModelSource source = taken_source(in);
    source.runtime.isa = isa_;
    const std::string digest = in.text();
    if (!source.values) {
      layers_.clear();
      models_.clear();
      teachers_.clear();
      engine_.reset();
      policy_ = {};
      critic_ = {};
    }
    make_ranks(rank_layout(source.runtime.ranks))->run([&](int local) {
      if (local > 0) return;
      OpenedModel& opened = source.values ? critic_.opened : policy_.opened;
      opened = source.values      ? open_value_model(source.runtime)
               : source.untrained ? open_untrained_model(source.runtime, source.seed, source.deviation)
                                  : open_model(source.runtime);
      if (source.values && policy_.opened.runtime) opened.runtime->backend.device().share_pool(policy_.opened.runtime->backend.device());
      if (const std::string own = opened.runtime->profile.digest(); own != digest)
        fail(ErrorCode::invalid_argument, "the profile '{}' has the digest {} in this process and {} in process 0; allowed is one program",
             source.runtime.profile, own, digest);
      log_debug("the model is open", {{"process", mail_.process()}, {"instruction_set", instruction_set_name(opened.runtime->backend.isa())}});
    });
  }
  void make(std::uint64_t number, ByteReader& in) {
    TrainedBase& base = in.value<bool>() ? critic_ : policy_;
    if (!base.opened.runtime) fail(ErrorCode::internal, "process 0 makes a model before this process has opened one");
    base.options = taken_options(in);
    const TrainedSettings settings = taken_settings(in);
    if (!in.value<bool>()) base.frozen.reset();  // process 0 makes that again, or has made none
    if (base.ranks && base.ranks->ranks().layout() != base.options.ranks) base.ranks.reset();
    if ((settings.rank > 0 || settings.base_only) && !base.frozen) base.weights = base.opened.weight_set();
    models_[number] = make_trained_model_here(base, settings);
    base.weights.reset();  // this process's ranks have their shares
  }

  ProcessMail& mail_;
  const std::string isa_;                                                 // of this process
  TrainedBase policy_, critic_;                                           // what models are made of
  std::map<std::uint64_t, std::unique_ptr<TrainedModel>> models_;         // by process 0's numbers
  std::map<std::uint64_t, std::unique_ptr<TrainedLayer>> layers_;         // beside models, by the same numbers; they go before these
  std::map<std::uint64_t, std::shared_ptr<const TeacherHead>> teachers_;  // of models that learn from one, by the same numbers
  std::unique_ptr<StepFollower> engine_;
};

}  // namespace

bool follow_processes(const ProcessSettings& settings, const std::string& isa) {
  join_processes(settings);
  return follow_calls([isa](ProcessMail& mail) -> PerformCall {
    return [follower = std::make_shared<CallFollower>(mail, isa)](const std::string& call) { follower->perform(call); };
  });
}

bool has_followers() { return joined_mail() != nullptr; }

void open_beside(const ModelSource& source) {
  ProcessMail* mail = joined_mail();
  if (!mail) return;
  const std::unique_ptr<Ranks> ranks = make_ranks(rank_layout(source.runtime.ranks));
  tell_call(*mail, ModelCall::open, [&](ByteWriter& out) { put_source(out, source), out.text(profile_by_name(source.runtime.profile).digest()); });
  ranks->run([](int) {});
}

}  // namespace lockstep
