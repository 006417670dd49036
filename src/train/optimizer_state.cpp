#include "train/optimizer_state.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/launch.h"
#include "model/compute_copy.h"
#include "parallel/collectives.h"
#include "train/cut_matrix.h"
#include "train/gradient_norm.h"
#include "train/quantised_masters.h"

namespace lockstep {

OptimizerState::OptimizerState(Backend& backend, const RankRows& rows, const Profile* profile, std::vector<TrainedParameter> parameters,
                               const WeightImages& masters, const OptimizerFamily& optimizer, const TrainerOptions& options)
    : backend_(backend), rows_(rows), profile_(profile), parameters_(std::move(parameters)), optimizer_(optimizer), file_(backend, options) {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto [rows, cols] = rows_.shape(i);
    bytes += static_cast<std::size_t>(moments_of(i).moments + separate(i)) * backend.device().file_bytes(DType::f32, rows * cols);
  }
  file_.reserve(parameters_.size(), bytes);
  upload([&](std::size_t i) -> const std::vector<float>& { return masters[i]; });
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    for (int m = 0; m < MomentSpec::kMostMoments; ++m) {
      Buffer& moment = moments_[m].emplace_back();
      if (m >= moments_of(i).moments) continue;
      moment = allocate(i, MemoryCategory::optimizer);
      if (!file_.holds()) backend.stream().fill_zero(moment.view());  // a file begins with zeros
    }
}

Buffer OptimizerState::allocate(std::size_t i, MemoryCategory category) {
  const auto [rows, cols] = rows_.shape(i);
  return file_.allocate(i, rows, cols, category);
}

// What this rank keeps of a parameter's compute copy.
Buffer OptimizerState::upload_copy(std::size_t i, const std::vector<float>& master) {
  const Parameter& p = rows_.manifest().parameters()[i];
  const bool quantised = compute(i) == DType::u8;
  if (quantised && !rows_.keeps_rows(i)) return make_compute_copy(backend_, p, *profile_, master);
  const Buffer copy = rows_.allocate_copy(i, profile_);
  if (!rows_.keeps_rows(i)) {
    backend_.stream().write(copy.view(), master);
  } else if (!quantised) {
    rows_.write(i, copy.view(), master);
  } else if (copy.view().size() > 0) {
    const Buffer whole = make_compute_copy(backend_, p, *profile_, master);  // rows may share scales
    backend_.stream().copy(copy.view(), rows_.own(i, whole.view()));
  }
  return copy;
}

void OptimizerState::upload(const std::function<const std::vector<float>&(std::size_t)>& master_of) {
  std::vector<Buffer> next, weights;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const std::vector<float>& image = master_of(i);
    weights.push_back(upload_copy(i, image));
    if (separate(i)) {
      next.push_back(file_.holds() && !masters_.empty() ? masters_[i] : allocate(i, MemoryCategory::weights));  // the file has space for one copy
      rows_.write(i, next.back().view(), image);
      file_.leave(i);
    } else {
      next.push_back(weights.back());  // a step writes another buffer
    }
  }
  masters_ = std::move(next);
  weights_ = std::move(weights);
}

void OptimizerState::check_usable() const {
  if (broken_after_)
    fail(ErrorCode::unsupported, "what followed step {} was broken off by an error, and weights and optimizer are of no step; restore a checkpoint",
         *broken_after_);
}

void OptimizerState::break_off() {
  if (!broken_after_) broken_after_ = steps_;
}

// The norm of the gradients on all ranks, of which this one counts `own`.
Buffer OptimizerState::norm_of(std::vector<View> own_gradients) {
  const RankPlace& place = rows_.place();
  const Buffer norm = backend_.device().allocate(DType::f32, 1, 1, MemoryCategory::workspace);
  SquareSum own{norm.view(), std::move(own_gradients)};
  if (!place.world) {
    backend_.launch(&KernelTable::square_sum, own);
    return norm;
  }
  const int ranks = place.layout.size();
  const Buffer parts = backend_.device().allocate(DType::bins, ranks, 16, MemoryCategory::workspace);
  own.norm = {};
  own.sum = parts.view().row_range(place.rank, 1);
  backend_.launch(&KernelTable::square_sum, own);
  std::vector<View> all;
  for (int r = 0; r < ranks; ++r) all.push_back(parts.view().row_range(r, 1));
  all_gather(*place.world, backend_.stream(), own.sum, all);
  backend_.launch(&KernelTable::square_sum, SquareSum{norm.view(), {}, parts.view(), {}});
  return norm;
}

std::vector<View> OptimizerState::counted(GradientSet& gradients, const std::string* group) const {
  std::vector<View> own;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (const TrainedParameter& p = parameters_[i]; p.trained && p.counts && (!group || p.group == *group))
      own.push_back(gradients.gradient(static_cast<ParameterId>(i)));
  return own;
}

std::vector<std::pair<std::string, double>> OptimizerState::norms_by_group(GradientSet& gradients, double scale) {
  std::vector<std::pair<std::string, double>> norms;
  for (const TrainedParameter& p : parameters_) {
    if (!p.trained || std::any_of(norms.begin(), norms.end(), [&](const auto& known) { return known.first == p.group; })) continue;
    const float norm = backend_.stream().read(norm_of(counted(gradients, &p.group)).view()).get()[0];
    norms.emplace_back(p.group, static_cast<double>(norm * static_cast<float>(scale)));
  }
  return norms;
}

OptimResult OptimizerState::step(GradientSet& gradients, const AdamParameters& wanted, const std::function<void()>& publish) {
  check_usable();
  const Buffer norm_buffer = norm_of(counted(gradients));
  const double norm = backend_.stream().read(norm_buffer.view()).get()[0];
  if (!std::isfinite(norm)) fail(ErrorCode::numeric, "the gradient norm of step {} is not finite; the weights are unchanged", steps_);
  OptimResult result;
  if (wanted.group_norms) result.group_norms = norms_by_group(gradients, wanted.gradient_scale);
  AdamParameters adam = wanted;
  result.gradient_norm = take_scale(backend_, norm_buffer.view(), norm, adam);
  const std::unique_ptr<Stepper> stepper =
      optimizer_.begin({backend_, adam, steps_ + 1, norm_buffer.view(), scaled_norm(norm, wanted).factor, file_.released()});

  broken_after_ = steps_++;
  std::vector<Buffer> next;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    next.push_back(weights_[i]);
    if (parameters_[i].trained) move(i, gradients, *stepper, next.back());
  }
  weights_ = std::move(next);
  publish();
  broken_after_.reset();
  result.version = static_cast<std::uint64_t>(steps_);
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (const Parameter& p = rows_.manifest().parameters()[i]; parameters_[i].trained) result.elements += p.count * p.outputs * p.inputs;
  return result;
}

// One parameter's step: `next` becomes its next compute copy.
void OptimizerState::move(std::size_t i, GradientSet& gradients, Stepper& stepper, Buffer& next) {
  const Parameter& p = rows_.manifest().parameters()[i];
  const bool quantised = compute(i) == DType::u8;
  next = rows_.allocate_copy(i, profile_);
  const View own = rows_.own_copy(i, next.view());
  StepViews views;
  views.master = master(i);
  for (int m = 0; m < moments_of(i).moments; ++m) views.moments[m] = moments_[m][i].view();
  views.master_out = separate(i) ? views.master : own;
  if (separate(i) && !quantised) views.compute_out = own;
  views.gradient = gradients.gradient(static_cast<ParameterId>(i));
  const bool whole = moments_of(i).whole;
  if (whole) file_.fetch(i);
  Parameter stepped = p;
  if (optimizer_.whole_matrices) stepped.count = rows_.own_items(i);
  const RankPlace& place = rows_.place();
  if (whole && place.layout.tp > 1 && cuts_matrices(p.split))
    step_cut_matrix(backend_, *place.tensor, stepped, parameters_[i].role, moments_of(i).moments, stepper, views);
  else if (own.size() > 0) stepper.move(stepped, parameters_[i].role, views);
  if (own.size() > 0 && quantised) quantise_masters(backend_, p, *profile_, views.master, own);
  if (whole || quantised) file_.leave(i);
  if (!rows_.keeps_rows(i)) rows_.gather(i, next.view());
  if (!separate(i)) masters_[i] = next;
  gradients.drop(static_cast<ParameterId>(i));  // frees memory for the next one
}

void OptimizerState::replace(ParameterId id, const std::vector<float>& values) {
  const auto i = static_cast<std::size_t>(id);
  const View old = weights_[i].view();
  masters_[i] = weights_[i] = backend_.device().upload(values, old.rows, old.cols, MemoryCategory::weights);
}

std::vector<float> OptimizerState::image(StatePart part, std::size_t i) {
  check_usable();
  const int moment = part == StatePart::first_moment ? 0 : 1;
  if (part == StatePart::master) {
    std::vector<float> values = rows_.image(i, master(i));
    file_.leave(i);
    return values;
  }
  if (!parameters_[i].trained) return {};
  if (moment >= moments_of(i).moments) return std::vector<float>(static_cast<std::size_t>(rows_.manifest().parameters()[i].size()));
  std::vector<float> values = rows_.image(i, moments_[moment][i].view());
  file_.leave(i);
  return values;
}

WeightImages OptimizerState::images(StatePart part) {
  WeightImages images;
  for (std::size_t i = 0; i < parameters_.size(); ++i) images.push_back(image(part, i));
  return images;
}

OptimizerState::OwnRows OptimizerState::own_rows(StatePart part, std::size_t i) {
  check_usable();
  backend_.stream().synchronize();
  const Buffer& buffer = part == StatePart::master ? masters_[i] : moments_[static_cast<int>(part) - 1][i];
  const View own = part == StatePart::master ? master(i) : buffer.view();
  const std::int64_t rows = rows_.own_rows(i).second;
  return {buffer, own.reshape(rows, rows > 0 ? own.size() / rows : 0)};
}

StateReader reader_of(const TrainerState& state) {
  return [&state](StatePart part, std::size_t i, bool) -> const std::vector<float>& {
    return (part == StatePart::master ? state.masters : part == StatePart::first_moment ? state.first_moments : state.second_moments)[i];
  };
}

void OptimizerState::restore(const StateReader& read, std::int64_t steps, const std::function<void()>& publish) {
  break_off();  // until all of it is restored
  upload([&](std::size_t i) -> const std::vector<float>& { return read(StatePart::master, i, rows_.keeps_rows(i)); });
  constexpr StatePart kMoments[] = {StatePart::first_moment, StatePart::second_moment};
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    for (int m = 0; m < moments_of(i).moments; ++m) rows_.write(i, moments_[m][i].view(), read(kMoments[m], i, true));
    file_.leave(i);
  }
  steps_ = steps;
  publish();
  broken_after_.reset();
}

}  // namespace lockstep
