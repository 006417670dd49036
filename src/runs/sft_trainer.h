// What a supervised run trains: all weights of a model, or an adapter over them. Knows checkpoints and exports of both, and no data.
// One thread.
//   auto trainer = make_sft_trainer(opened, config); trainer->forward_backward(batch, index); trainer->optim_step(adam);
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/output_path.h"
#include "checkpoint/run_directory.h"
#include "serving/loading.h"
#include "train/options.h"
#include "train/data.h"

namespace lockstep {

struct SftConfig;

class SftTrainer {
 public:
  virtual ~SftTrainer() = default;
  virtual ForwardBackwardResult forward_backward(const std::vector<TrainSequence>& batch, const IndexTraining& index) = 0;
  virtual OptimResult optim_step(const AdamParameters& adam) = 0;
  virtual std::vector<std::vector<float>> score(const std::vector<TrainSequence>& data) = 0;
  virtual std::int64_t step() const = 0;
  // A checkpoint with the caller's position; the newest, and its position.
  virtual void save(const RunDirectory& run, const Json& position, int keep_last) = 0;
  virtual Json restore(const RunDirectory& run) = 0;
  // The weights of another run's checkpoint, as a beginning: step 0, an optimizer without a past.
  virtual void begin_from(const std::filesystem::path& checkpoint) = 0;
  virtual std::string weights_sha256() = 0;
  virtual void export_to(const std::filesystem::path& folder, Overwrite overwrite) = 0;
};

// Takes the masters of `opened`. Errors: those of the trainers; unsupported for an adapter under ranks.
std::unique_ptr<SftTrainer> make_sft_trainer(OpenedModel& opened, const SftConfig& config);

}  // namespace lockstep
