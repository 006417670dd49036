#include "parity/bench_trainer.h"

#include "base/error.h"
#include "base/log.h"
#include "model/value_head.h"
#include "parallel/follow_calls.h"
#include "parallel/process_ranks.h"
#include "parity/parity_run.h"
#include "train/sequence_record.h"

namespace lockstep {

namespace {
// What a bench's trainer is made with: plain values alone.
struct BenchNumbers {
  BackendKind backend;
  InstructionSet isa;
  int threads;
  RankLayout ranks;
  std::int64_t positions, page_size, micro_batch;
  ParityModel::Kind model;
  std::int64_t checkpoint_activations, accumulate, train_indexer;
};

std::unique_ptr<Ranks> ranks_of_bench(const TrainerOptions& options, ProcessMail* lead) {
  return lead ? std::make_unique<ProcessRanks>(options.ranks, *lead) : nullptr;
}
}  // namespace

template <class F>
void BenchTrainer::tell(Call call, const F& put) const {
  if (lead_) tell_call(*lead_, call, put);
}

void BenchTrainer::tell(Call call) const {
  tell(call, [](ByteWriter&) {});
}

BenchTrainer::BenchTrainer(Runtime& runtime, const ParityModel& model, const TrainerOptions& options, ProcessMail* lead) : lead_(lead) {
  std::unique_ptr<Ranks> ranks = ranks_of_bench(options, lead);  // before anybody is told: it may refuse
  tell(Call::make, [&](ByteWriter& out) {
    Device& device = runtime.backend.device();
    out.value(BenchNumbers{device.kind(), runtime.backend.isa(), device.threads().threads(), options.ranks, runtime.max_positions, options.page_size,
                           options.micro_batch, model.kind, options.checkpoint_activations, options.accumulate, options.train_indexer});
    out.text(runtime.profile.name);
  });
  own_ = std::make_unique<Trainer>(runtime, model.masters, options, std::make_shared<RankRuntimes>(runtime, options.ranks, std::move(ranks)));
}

BenchTrainer::~BenchTrainer() {
  try {
    tell(Call::forget);
  } catch (const std::exception& e) {
    log_warning("the processes that follow were not told that a trainer is gone", {{"error", e.what()}});
  }
}

std::vector<std::vector<float>> BenchTrainer::score(const std::vector<TrainSequence>& data) {
  tell(Call::score, [&](ByteWriter& out) { put_sequences(out, data); });
  return own_->score(data);
}

ForwardBackwardResult BenchTrainer::forward_backward(const std::vector<TrainSequence>& data, const LossOptions& loss, const IndexTraining& index) {
  tell(Call::forward_backward, [&](ByteWriter& out) { put_sequences(out, data), out.value(loss), out.value(index); });
  return own_->forward_backward(data, loss, index);
}

OptimResult BenchTrainer::optim_step(const AdamParameters& adam) {
  tell(Call::optim_step, [&](ByteWriter& out) { out.value(adam); });
  return own_->optim_step(adam);
}

std::shared_ptr<const WeightSet> BenchTrainer::weights() { return tell(Call::weights), own_->weights(); }
WeightImages BenchTrainer::gradient_images() { return tell(Call::gradients), own_->gradient_images(); }
WeightImages BenchTrainer::master_images() { return tell(Call::masters), own_->state().masters(); }
CommunicatorCounters BenchTrainer::traffic() const { return tell(Call::traffic), own_->ranks().traffic(); }
ForwardCounts BenchTrainer::work() const { return tell(Call::work), own_->ranks().work(); }

ParityModel with_value_head(const ParityModel& language) {
  ParityModel values{make_model(value_config(language.model->config())), {}};
  values.kind = ParityModel::Kind::value_head;
  const Manifest &from = language.model->manifest(), &to = values.model->manifest();
  values.masters = initial_weights(to, 7, 0.5);
  std::vector<float> numbers;
  for (const FileTensor& file : from.files())
    for (const FileTensor& same : to.files()) {
      if (same.name != file.name) continue;
      numbers.resize(static_cast<std::size_t>(file.size()));
      from.gather(file, language.masters, numbers.data());
      to.scatter(same, numbers.data(), values.masters);
    }
  return values;
}

void BenchFollower::make(ByteReader& in) {
  engine_.reset();
  trainer_.reset();
  const auto numbers = in.value<BenchNumbers>();
  const Profile& profile = profile_of_bench(in.text());
  if (numbers.model != ParityModel::Kind::compared && (!other_ || other_->kind != numbers.model))
    other_ = std::make_unique<const ParityModel>(numbers.model == ParityModel::Kind::control ? control_model(profile) : with_value_head(model_));
  const ParityModel& model = numbers.model == ParityModel::Kind::compared ? model_ : *other_;
  TrainerOptions options;
  options.micro_batch = numbers.micro_batch;
  options.checkpoint_activations = numbers.checkpoint_activations != 0;
  options.accumulate = numbers.accumulate != 0;
  options.train_indexer = numbers.train_indexer != 0;
  options.page_size = numbers.page_size;
  options.ranks = numbers.ranks;
  runtime_ = std::make_unique<Runtime>(BackendOptions{.kind = numbers.backend, .isa = numbers.isa, .threads = numbers.threads}, model.model, profile,
                                       numbers.positions);
  engine_ = std::make_unique<StepFollower>(*runtime_, mail_);
  trainer_ =
      std::make_unique<Trainer>(*runtime_, model.masters, options, std::make_shared<RankRuntimes>(*runtime_, options.ranks, ranks_of_bench(options, &mail_)));
}

void BenchFollower::perform(const std::string& call) {
  ByteReader in(call);
  if (!call.empty() && is_engine_call(static_cast<std::uint8_t>(call.front()))) {
    if (!engine_) fail(ErrorCode::internal, "process 0 makes a call of an engine before a bench");
    return engine_->perform(in);
  }
  using Call = BenchTrainer::Call;
  const auto which = in.value<Call>();
  if (which == Call::make) return make(in);
  if (which == Call::forget) return trainer_.reset();
  if (!trainer_) fail(ErrorCode::internal, "process 0 makes call {} of a trainer that is not there", static_cast<int>(which));
  switch (which) {
    case Call::score:
      trainer_->score(taken_sequences(in));
      return;
    case Call::forward_backward: {
      const auto data = taken_sequences(in);
      const auto loss = in.value<LossOptions>();
      trainer_->forward_backward(data, loss, in.value<IndexTraining>());
      return;
    }
    case Call::optim_step:
      try {
        trainer_->optim_step(in.value<AdamParameters>());
      } catch (const Error& e) {  // of the gradient's norm: the process that leads has it too, and tells it
        if (e.code() != ErrorCode::numeric) throw;
      }
      return;
    case Call::weights:
      trainer_->weights();
      return;
    case Call::gradients:
      trainer_->gradient_images();
      return;
    case Call::masters:
      trainer_->state().masters();
      return;
    case Call::traffic:
      trainer_->ranks().traffic();
      return;
    case Call::work:
      trainer_->ranks().work();
      return;
    default:
      fail(ErrorCode::internal, "process 0 makes call {} of a trainer, which there is not", static_cast<int>(which));
  }
}

}  // namespace lockstep
