#include "model/tape.h"

#include "base/error.h"
#include "kernels/launch.h"
#include "model/weights.h"

namespace lockstep {

namespace {
// Bins cover a table row in whole groups of 16 lanes.
std::int64_t bin_columns(const Parameter& p) { return p.layout == ParameterLayout::packed ? p.size() : (p.inputs + 15) / 16 * 16; }
}  // namespace

GradientSet::GradientSet(Backend& backend, const Manifest& manifest, bool persistent_bins, const std::vector<ParameterShare>* shares, bool rows_alone)
    : backend_(backend),
      manifest_(manifest),
      shares_(shares),
      persistent_bins_(persistent_bins),
      rows_alone_(rows_alone),
      gradients_(manifest.parameters().size()),
      bins_(gradients_.size()),
      row_bins_(gradients_.size()) {}

View GradientSet::bins(ParameterId id) {
  if (finish_at_once()) return {};
  Buffer& bins = bins_[static_cast<std::size_t>(id)];
  if (!bins) {
    const Parameter& p = manifest_.parameter(id);
    bins = backend_.device().allocate_zero(DType::bins, p.layout == ParameterLayout::packed ? 1 : p.table_rows(), bin_columns(p), MemoryCategory::gradients);
  }
  return bins.view();
}

void GradientSet::put_rows_away(ParameterId id) {
  const auto i = static_cast<std::size_t>(id);
  const View joined = (*shares_)[i].rows(bins(id));
  if (joined.size() > 0) {
    Buffer& rows = row_bins_[i];
    if (rows) {
      backend_.launch(&KernelTable::join_bins, JoinBins{rows.view(), joined});
    } else {
      rows = backend_.device().allocate(DType::bins, joined.rows, joined.cols, MemoryCategory::gradients);
      backend_.stream().copy(rows.view(), joined);
    }
  }
  bins_[i] = Buffer();
}

View GradientSet::kept_bins(ParameterId id) {
  if (!rows_alone_) return bins(id);
  Buffer& rows = row_bins_[static_cast<std::size_t>(id)];
  if (!rows) {
    const Parameter& p = manifest_.parameter(id);
    const ParameterShare& share = (*shares_)[static_cast<std::size_t>(id)];
    const std::int64_t width = p.layout == ParameterLayout::packed ? share.width : bin_columns(p);
    rows = backend_.device().allocate_zero(DType::bins, share.count(), width, MemoryCategory::gradients);
  }
  return rows.view();
}

const View& GradientSet::gradient(ParameterId id) {
  Buffer& gradient = gradients_[static_cast<std::size_t>(id)];
  if (!gradient) {
    const Parameter& p = manifest_.parameter(id);
    if (shares_ && p.trained) {
      const ParameterShare& share = (*shares_)[static_cast<std::size_t>(id)];
      gradient = backend_.device().allocate(DType::f32, share.count(), share.width, MemoryCategory::gradients);
    } else {
      gradient = allocate_parameter(backend_, p, DType::f32, MemoryCategory::gradients);
    }
    backend_.stream().fill_zero(gradient.view());
  }
  return gradient.view();
}

void GradientSet::finish() {
  for (std::size_t i = 0; i < bins_.size(); ++i) {
    const Parameter& p = manifest_.parameters()[i];
    if (rows_alone_ && bins_[i]) fail(ErrorCode::internal, "gradients of '{}' were deposited after its segment was done", p.name);
    const Buffer& bins = rows_alone_ ? row_bins_[i] : bins_[i];
    if (!bins) continue;
    const bool cut = shares_ && p.trained && !rows_alone_;
    finish(i, cut ? (*shares_)[i].rows(bins.view()) : bins.view());
  }
}

void GradientSet::finish(std::size_t i, const View& bins) {
  const Parameter& p = manifest_.parameters()[i];
  const View& to = gradient(static_cast<ParameterId>(i));
  if (to.size() > 0) backend_.launch(&KernelTable::finish_bins, FinishBins{to, bins, p.layout == ParameterLayout::packed ? 0 : p.inputs});
}

void GradientSet::end_parts() {
  if (!std::exchange(in_parts_, false)) return;
  for (std::size_t i = 0; i < bins_.size(); ++i) {
    if (bins_[i]) finish(i, bins_[i].view());
    bins_[i] = Buffer();
  }
}

void GradientSet::clear() {
  for (Buffer& gradient : gradients_) gradient = Buffer();
  for (std::vector<Buffer>* all : {&bins_, &row_bins_})
    for (Buffer& bins : *all)
      if (bins) backend_.stream().fill_zero(bins.view());
}

void Tape::contribute(int node, Buffer gradient) {
  if (node < 0) return;
  Buffer& sum = node_gradients_[static_cast<std::size_t>(node)];
  if (!sum) {
    sum = std::move(gradient);
    return;
  }
  // Not in place: either buffer may also be the gradient of another node.
  Buffer total = backend_.device().allocate(DType::f32, sum.view().rows, sum.view().cols, MemoryCategory::activations);
  backend_.launch(&KernelTable::add, Add{total.view(), sum.view(), gradient.view()});
  sum = std::move(total);
}

Buffer Tape::take(int node) {
  if (node < 0) return {};
  return std::exchange(node_gradients_[static_cast<std::size_t>(node)], Buffer());
}

void Tape::backward() {
  while (!records_.empty()) {
    std::function<void()> record = std::move(records_.back());
    records_.pop_back();
    record();
  }
}

}  // namespace lockstep
