// What the steps of a parity run move, behind one interface: all weights of a model, or an adapter over weights that stay as they are.
//   auto trainer = adapter_step_trainer(runtime, model, {.micro_batch = 2}); trainer->forward_backward(data, {}, {}); trainer->optim_step({});
// One thread; runtime and model outlive it.
#pragma once
#include "model/adapter.h"
#include "parity/bench_trainer.h"

namespace lockstep {

class StepTrainer {
 public:
  virtual ~StepTrainer() = default;
  virtual const Manifest& manifest() const = 0;  // of what is moved: shapes of gradient_images() and master_images()
  virtual std::vector<std::vector<float>> score(const std::vector<TrainSequence>& data) = 0;
  // As Trainer's. An adapter has no indexer: `index` is ignored.
  virtual ForwardBackwardResult forward_backward(const std::vector<TrainSequence>& data, const LossOptions& loss, const IndexTraining& index) = 0;
  virtual void optim_step(const AdamParameters& adam) = 0;
  virtual WeightImages gradient_images() = 0;
  virtual WeightImages master_images() = 0;
  // What an engine serves now: weights, and the adapter over them or null.
  virtual std::shared_ptr<const WeightSet> weights() = 0;
  virtual std::shared_ptr<const AdapterWeights> adapter() = 0;
  virtual CommunicatorCounters traffic() = 0;
  virtual ForwardCounts work() = 0;
};

// `lead`: as BenchTrainer's.
std::unique_ptr<StepTrainer> whole_step_trainer(Runtime& runtime, const ParityModel& model, const TrainerOptions& options, ProcessMail* lead);
// The adapter that is compared: of everything that can be adapted, experts' matrices and the head too.
std::shared_ptr<const AdapterLayout> step_adapter(const Model& model);
// Of that adapter, with random numbers in A and in B. Ranks are threads of this process.
std::unique_ptr<StepTrainer> adapter_step_trainer(Runtime& runtime, const ParityModel& model, const TrainerOptions& options);

}  // namespace lockstep
