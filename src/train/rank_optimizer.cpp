// The optimizer's half of a rank's trainer: gradients of all ranks joined, each rank's share stepped, the next weights gathered.
#include <cmath>

#include "base/error.h"
#include "parallel/collectives.h"
#include "train/adam.h"
#include "train/filed_step.h"
#include "train/muon.h"
#include "train/rank_trainer.h"

namespace lockstep {

// Accumulators of all data-parallel ranks come to the rank whose share they are, and become its gradient.
void RankTrainer::finish_gradients() {
  Backend& backend = runtime_.backend;
  if (place_.layout.dp > 1) {
    const AddInto add = [&](const View& into, const View& from) { backend.launch(&KernelTable::join_bins, JoinBins{into, from}); };
    for (std::size_t i = 0; i < shares_.size(); ++i)
      if (shared_out(i) && shares_[i].total() > 0) reduce_scatter(*place_.data, backend.device(), shares_[i].by_row(gradients_->bins(static_cast<ParameterId>(i))), shares_[i].bounds, add);
  }
  gradients_->finish();
}

// The norm of the whole gradient: each rank adds what it alone answers for.
Buffer RankTrainer::gradient_norm() {
  Backend& backend = runtime_.backend;
  const Buffer norm = backend.device().allocate(DType::f32, 1, 1, MemoryCategory::workspace);
  SquareSum own{norm.view(), {}};
  for (std::size_t i = 0; i < masters_.size(); ++i)
    if (moves(manifest_.parameters()[i]) && answers_for(i)) own.gradients.push_back(gradients_->gradient(static_cast<ParameterId>(i)));
  if (!place_.world) {
    backend.launch(&KernelTable::square_sum, own);
    return norm;
  }
  const int ranks = place_.layout.size();
  const Buffer parts = backend.device().allocate(DType::bins, ranks, 16, MemoryCategory::workspace);
  own.norm = {};
  own.sum = parts.view().row_range(place_.rank, 1);
  backend.launch(&KernelTable::square_sum, own);
  std::vector<View> all;
  for (int r = 0; r < ranks; ++r) all.push_back(parts.view().row_range(r, 1));
  all_gather(*place_.world, backend.stream(), own.sum, all);
  backend.launch(&KernelTable::square_sum, SquareSum{norm.view(), {}, parts.view(), {}});
  return norm;
}

OptimResult RankTrainer::optim_step(const AdamParameters& wanted) {
  if (pending_calls_ == 0) fail(ErrorCode::invalid_argument, "optim_step without a forward_backward before it");
  Backend& backend = runtime_.backend;
  if (options_.accumulate && bins_) finish_gradients();
  pending_calls_ = 0;
  const Buffer norm_buffer = gradient_norm();
  const double norm = backend.stream().read(norm_buffer.view()).get()[0];
  if (!std::isfinite(norm)) fail(ErrorCode::numeric, "the gradient norm of step {} is not finite; the weights are unchanged", step_);
  OptimResult result;
  if (wanted.group_norms && !place_.world) result.group_norms = group_norms(wanted.gradient_scale);
  AdamParameters adam = wanted;
  result.gradient_norm = take_scale(backend, norm_buffer.view(), norm, adam);

  drop_kept();
  auto next = std::make_shared<WeightSet>();
  next->version = static_cast<std::uint64_t>(++step_);
  Muon muon(backend, {adam.learning_rate, static_cast<float>(adam.beta1), scaled_norm(norm, wanted).factor});
  if (options_.optimizer == OptimizerFamily::dimuon) {
    const AdamParameters standard;
    adam.learning_rate *= Muon::kAdamRate;
    adam.beta2 = standard.beta2, adam.eps = standard.eps, adam.weight_decay = 0;
  }
  const AdamStep step(adam, step_);
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    const Parameter& p = manifest_.parameters()[i];
    if (!moves(p)) {
      next->parameters.push_back(weights_->parameters[i]);
      continue;
    }
    const DType dtype = compute_dtype(p, runtime_.profile);
    Buffer compute = allocate_parameter(backend, p, dtype, MemoryCategory::weights);
    const View own = shared_out(i) ? shares_[i].rows(compute.view()) : compute.view(), old = master(i);
    const bool separate = dtype != DType::f32, decays = runtime_.model->manifest().parameters()[i].outputs > 1;
    if (muon_steps(i)) {
      fetch_state(i);  // its products want the matrix whole
      muon.step(p, {old, first_moments_[i].view(), separate ? old : own, separate ? own : View{}, gradients_->gradient(static_cast<ParameterId>(i))});
      leave_state(i);
    } else if (own.size() > 0) {
      launch_adamw(backend, options_.release_state ? state_file_ : nullptr,
                   step.of(old, first_moments_[i].view(), second_moments_[i].view(), separate ? old : own, separate ? own : View{},
                           gradients_->gradient(static_cast<ParameterId>(i)), norm_buffer.view(), decays));
    }
    if (shared_out(i) && shares_[i].total() > 0) gather_rows(i, compute.view());
    if (!separate) masters_[i] = compute;
    gradients_->drop(static_cast<ParameterId>(i));  // its memory is the next one's
    next->parameters.push_back(std::move(compute));
  }
  for (std::size_t layer = 0; layer < router_loads_.size(); ++layer) {
    if (adam.router_bias_rate > 0) move_router_bias(layer, adam.router_bias_rate, *next);
    backend.stream().fill_zero(router_loads_[layer].view());
  }
  gradients_.reset();
  weights_ = std::move(next);
  result.version = weights_->version;
  for (const Parameter& p : manifest_.parameters())
    if (moves(p)) result.elements += p.count * p.outputs * p.inputs;
  return result;
}

std::vector<std::pair<std::string, double>> RankTrainer::group_norms(double scale) {
  GradientGroups groups;
  for (std::size_t i = 0; i < masters_.size(); ++i)
    if (const Parameter& p = manifest_.parameters()[i]; moves(p)) add_to_group(groups, gradient_group(p), gradients_->gradient(static_cast<ParameterId>(i)));
  return lockstep::group_norms(runtime_.backend, groups, scale);
}

// The aim is an even load; counted exactly over all ranks' rows, moved by a fixed rate.
void RankTrainer::move_router_bias(std::size_t layer, double rate, WeightSet& next) {
  Backend& backend = runtime_.backend;
  const int ranks = place_.layout.dp;
  const std::int64_t experts = runtime_.model->facts().expert_count;
  Buffer loads = router_loads_[layer];
  if (ranks > 1) {
    loads = backend.device().allocate(DType::i32, ranks, experts, MemoryCategory::workspace);
    std::vector<View> all;
    for (int r = 0; r < ranks; ++r) all.push_back(loads.view().row_range(r, 1));
    all_gather(*place_.data, backend.stream(), router_loads_[layer].view(), all);
  }
  const std::vector<std::int32_t> counts = backend.stream().read_ints(loads.view()).get();
  std::vector<std::int64_t> load(static_cast<std::size_t>(experts));
  for (std::size_t i = 0; i < counts.size(); ++i) load[i % load.size()] += counts[i];
  const auto id = static_cast<std::size_t>(runtime_.model->facts().router_biases[layer]);
  std::vector<float> bias = backend.stream().read(masters_[id].view()).get();
  std::int64_t total = 0;
  for (const std::int64_t n : load) total += n;
  for (std::size_t e = 0; e < bias.size(); ++e) {
    const std::int64_t excess = total - load[e] * experts;
    bias[e] += static_cast<float>(rate) * static_cast<float>((excess > 0) - (excess < 0));
  }
  masters_[id] = backend.device().upload(bias, 1, experts, MemoryCategory::weights);
  next.parameters[id] = masters_[id];
}

// The rows of all data-parallel ranks, each from the one that has them.
void RankTrainer::gather_rows(std::size_t i, const View& whole) {
  std::vector<View> all;
  for (int r = 0; r < place_.layout.dp; ++r) all.push_back(shares_[i].rows_of(whole, r));
  all_gather(*place_.data, runtime_.backend.stream(), shares_[i].rows(whole), all);
}

std::vector<float> RankTrainer::image(std::size_t i, const View& rows) {
  Backend& backend = runtime_.backend;
  if (shares_[i].total() == 0) return {};  // all of it is other ranks'
  if (!shared_out(i)) return place_.data_rank() == 0 ? backend.stream().read(rows).get() : std::vector<float>();
  const Buffer whole = allocate_parameter(backend, manifest_.parameters()[i], DType::f32, MemoryCategory::workspace);
  backend.stream().copy(shares_[i].rows(whole.view()), rows.reshape(shares_[i].count(), shares_[i].width));
  gather_rows(i, whole.view());
  return place_.data_rank() == 0 ? backend.stream().read(whole.view()).get() : std::vector<float>();
}

WeightImages RankTrainer::gradient_images() {
  if (options_.accumulate) fail(ErrorCode::internal, "gradients are in the accumulator until optim_step");
  if (!gradients_) use_bins(several_parts(true));  // +0
  WeightImages images;
  for (std::size_t i = 0; i < masters_.size(); ++i) images.push_back(image(i, gradients_->gradient(static_cast<ParameterId>(i))));
  return images;
}

WeightImages RankTrainer::master_images() {
  WeightImages images;
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    images.push_back(image(i, master(i)));
    leave_state(i);
  }
  return images;
}

WeightImages RankTrainer::second_moment_images() {
  WeightImages images = moment_images(second_moments_);
  for (std::size_t i = 0; i < images.size(); ++i)
    if (muon_steps(i)) images[i].assign(static_cast<std::size_t>(manifest_.parameters()[i].size()), 0.0f);
  return images;
}

WeightImages RankTrainer::moment_images(const std::vector<Buffer>& moments) {
  WeightImages images;
  for (std::size_t i = 0; i < moments.size(); ++i) {
    images.push_back(moments[i] ? image(i, moments[i].view()) : std::vector<float>());
    leave_state(i);
  }
  return images;
}

std::vector<float> RankTrainer::state_image(StatePart part, std::size_t i) {
  std::vector<float> values;
  if (part == StatePart::second_moment && muon_steps(i)) {
    values.assign(static_cast<std::size_t>(manifest_.parameters()[i].size()), 0.0f);
  } else if (has_state(part, i)) {
    const View rows = part == StatePart::master ? master(i) : (part == StatePart::first_moment ? first_moments_ : second_moments_)[i].view();
    values = image(i, rows);
  }
  leave_state(i);
  return values;
}

void RankTrainer::restore(const TrainerState& state) {
  step_ = state.step;
  abandon_gradients();
  drop_kept();
  upload_masters(state.masters);
  const auto write = [&](const std::vector<Buffer>& moments, const WeightImages& whole) {
    const WeightImages shares = sharding_ ? sharding_->shares_of(whole) : WeightImages();
    for (std::size_t i = 0; i < moments.size(); ++i) {
      if (moments[i]) write_rows(i, moments[i].view(), sharding_ ? shares[i] : whole[i]);
      leave_state(i);
    }
  };
  write(first_moments_, state.first_moments);
  write(second_moments_, state.second_moments);
}

}  // namespace lockstep
