// The optimizer of a trainer with its state: masters, moments (in memory or in a file), step count, the compute copies for the forward. A step
// computes the norm, checks and scales gradients, updates each parameter, exchanges between ranks, and publishes the next version.
//   OptimizerState state(backend, rows, &profile, parameters, masters, adamw(), options);
//   state.step(gradients.take(), adam, [&] { publish(state.weights()); });
// The same class for whole weights and adapters; the optimizer is a row of optimizers/optimizer.h. Used by the rank's thread.
#pragma once
#include <functional>
#include <optional>

#include "model/sharding.h"
#include "model/state_part.h"
#include "train/options.h"
#include "train/rank_rows.h"
#include "train/state_file.h"

namespace lockstep {

// One parameter, as its trainer sees it.
struct TrainedParameter {
  bool trained = true;
  bool counts = true;  // in the norm; false where another rank counts its equal copy
  ParameterRole role;
  std::string group;  // in OptimResult::group_norms
};

// Gives a restore one parameter's image of a part, in the layout of the rank's share; with `own` only the rows whose state the rank keeps are looked at. What
// it returns stays until the next call.
using StateReader = std::function<const std::vector<float>&(StatePart part, std::size_t parameter, bool own)>;
// Of a state in this layout, which outlives the reader.
StateReader reader_of(const TrainerState& state);

class OptimizerState {
 public:
  // Images, here and below, are of the rows' manifest. `profile`: of the compute copies; null: they are the masters, as an adapter's are.
  // Errors: unsupported for an optimizer that these ranks cannot have; io of the file.
  OptimizerState(Backend& backend, const RankRows& rows, const Profile* profile, std::vector<TrainedParameter> parameters, const WeightImages& masters,
                 const OptimizerFamily& optimizer, const TrainerOptions& options);

  // Consumes and frees the gradient of every trained parameter. `publish` is called last, when weights() are the next version. Error numeric,
  // and nothing has changed, when the gradient has a NaN or an infinity. A later error leaves the state unusable until restore().
  OptimResult step(GradientSet& gradients, const AdamParameters& adam, const std::function<void()>& publish);
  std::int64_t steps() const { return steps_; }
  BackendKind backend() const { return backend_.device().kind(); }
  // Of the newest step, by ParameterId: whole, or of a rank that keeps rows alone its rows (RankRows).
  const std::vector<Buffer>& weights() const { return weights_; }
  // Sets a parameter that is not trained by gradients, from the next step on (call in `publish`).
  void replace(ParameterId id, const std::vector<float>& values);

  // One parameter's image, as RankRows::image; moments that the optimizer lacks are zeros for trained parameters, empty for others. Error unsupported,
  // as check_usable.
  std::vector<float> image(StatePart part, std::size_t i);
  WeightImages images(StatePart part);
  bool has(StatePart part, std::size_t i) const { return part == StatePart::master || parameters_[i].trained; }
  // `publish` is called last, as by step().
  void restore(const StateReader& read, std::int64_t steps, const std::function<void()>& publish);
  // The rows whose state this rank keeps, of one parameter, as rows (panels, or rows of a table); nothing is exchanged. They have these values until the next
  // step or restore, and another thread may read them until then, by a stream of its own. Of moments that the optimizer has (keeps). Error unsupported, as
  // check_usable.
  struct OwnRows {
    Buffer buffer;
    View rows;
  };
  OwnRows own_rows(StatePart part, std::size_t i);
  bool keeps(StatePart part, std::size_t i) const { return part == StatePart::master || static_cast<int>(part) <= moments_of(i).moments; }

  // Error unsupported after a step or a restore that failed in the middle: masters and moments are inconsistent until restore().
  void check_usable() const;
  void break_off();  // marks the state unusable, as an error in the middle does: when another rank's step failed

 private:
  Buffer allocate(std::size_t i, MemoryCategory category);
  Buffer upload_copy(std::size_t i, const std::vector<float>& master);
  void upload(const std::function<const std::vector<float>&(std::size_t)>& master_of);
  Buffer norm_of(std::vector<View> own_gradients);
  // The gradients that this rank counts; null: of all groups.
  std::vector<View> counted(GradientSet& gradients, const std::string* group = nullptr) const;
  // sqrt of each group's sum of squares over all ranks, times the scale.
  std::vector<std::pair<std::string, double>> norms_by_group(GradientSet& gradients, double scale);
  void move(std::size_t i, GradientSet& gradients, Stepper& stepper, Buffer& next);
  DType compute(std::size_t i) const { return profile_ ? compute_dtype(rows_.manifest().parameters()[i], *profile_) : DType::f32; }
  bool separate(std::size_t i) const { return compute(i) != DType::f32; }
  View master(std::size_t i) const { return rows_.own_of(i, masters_[i].view()); }
  MomentSpec moments_of(std::size_t i) const { return parameters_[i].trained ? optimizer_.moments(parameters_[i].role) : MomentSpec(); }

  Backend& backend_;
  const RankRows& rows_;
  const Profile* profile_;
  std::vector<TrainedParameter> parameters_;
  OptimizerFamily optimizer_;
  StateFile file_;
  // Of this rank's rows; a master in fp32 is the compute copy itself, which is whole unless ranks keep rows alone.
  std::vector<Buffer> masters_, moments_[MomentSpec::kMostMoments], weights_;
  std::int64_t steps_ = 0;
  std::optional<std::int64_t> broken_after_;  // the step after which an update failed in the middle
};

}  // namespace lockstep
