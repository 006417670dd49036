// The trainer of a parity bench. When the ranks belong to several processes, process 0 makes the calls and the others repeat them, as with the
// bench's engine (engine/step_follower.h).
//   BenchTrainer trainer(runtime, model, options, lead); trainer.score(data);   // the others: BenchFollower(model, mail).perform(call)
#pragma once
#include "base/byte_record.h"
#include "engine/step_follower.h"
#include "parity/parity.h"
#include "train/trainer.h"

namespace lockstep {

class BenchTrainer {
 public:
  // `lead` null: ranks are threads of this process. It outlives the trainer.
  BenchTrainer(Runtime& runtime, const ParityModel& model, const TrainerOptions& options, ProcessMail* lead = nullptr);
  ~BenchTrainer();

  // As Trainer's.
  std::vector<std::vector<float>> score(const std::vector<TrainSequence>& data);
  ForwardBackwardResult forward_backward(const std::vector<TrainSequence>& data, const LossOptions& loss, const IndexTraining& index = {});
  OptimResult optim_step(const AdamParameters& adam);
  std::shared_ptr<const WeightSet> weights();
  WeightImages gradient_images();
  WeightImages master_images();
  CommunicatorCounters traffic() const;
  ForwardCounts work() const;
  const Trainer& own() const { return *own_; }

 private:
  enum class Call : std::uint8_t { make, score, forward_backward, optim_step, weights, gradients, masters, traffic, work, forget };
  friend class BenchFollower;
  template <class F>
  void tell(Call call, const F& put) const;
  void tell(Call call) const;

  ProcessMail* const lead_;
  std::unique_ptr<Trainer> own_;
};

// The same model with a random value head instead of the vocabulary's.
ParityModel with_value_head(const ParityModel& language);

// In the other processes: repeats each call of process 0 on benches of its own. One thread.
class BenchFollower {
 public:
  // Of the same model as process 0's. Both outlive it.
  BenchFollower(const ParityModel& model, ProcessMail& mail) : model_(model), mail_(mail) {}
  void perform(const std::string& call);

 private:
  void make(ByteReader& in);

  const ParityModel& model_;
  ProcessMail& mail_;
  std::unique_ptr<const ParityModel> other_;  // than model_, needed last; null: none yet
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<StepFollower> engine_;
};

}  // namespace lockstep
