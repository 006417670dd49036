#include "model/tape.h"

#include "kernels/launch.h"
#include "model/weights.h"

namespace lockstep {

namespace {
// Bins cover a table row in whole groups of 16 lanes.
std::int64_t bin_columns(const Parameter& p) { return p.layout == ParameterLayout::packed ? p.size() : (p.inputs + 15) / 16 * 16; }
}  // namespace

GradientSet::GradientSet(Backend& backend, const Manifest& manifest, bool persistent_bins, const std::vector<ParameterShare>* shares)
    : backend_(backend),
      manifest_(manifest),
      shares_(shares),
      persistent_bins_(persistent_bins),
      gradients_(manifest.parameters().size()),
      bins_(gradients_.size()) {}

View GradientSet::bins(ParameterId id) {
  if (!persistent_bins_) return {};
  Buffer& bins = bins_[static_cast<std::size_t>(id)];
  if (!bins) {
    const Parameter& p = manifest_.parameter(id);
    bins = backend_.device().allocate_zero(DType::bins, p.layout == ParameterLayout::packed ? 1 : p.table_rows(), bin_columns(p), MemoryCategory::gradients);
  }
  return bins.view();
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
    if (!bins_[i]) continue;
    const Parameter& p = manifest_.parameters()[i];
    const auto id = static_cast<ParameterId>(i);
    const bool shared = shares_ && p.trained;
    if (gradient(id).size() == 0) continue;
    backend_.launch(&KernelTable::finish_bins, FinishBins{gradient(id), shared ? (*shares_)[i].rows(bins_[i].view()) : bins_[i].view(),
                                                          p.layout == ParameterLayout::packed ? 0 : p.inputs});
  }
}

void GradientSet::clear() {
  for (Buffer& gradient : gradients_) gradient = Buffer();
  for (Buffer& bins : bins_)
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
