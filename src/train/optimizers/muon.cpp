#include "train/optimizers/muon.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/launch.h"
#include "numerics/form.h"

namespace lockstep {

namespace {
constexpr int kSteps = 5;
constexpr float kA = 3.4445f, kB = -4.7750f, kC = 2.0315f;
constexpr double kSmallestNorm = 1e-7;

// Where element (n, k) of an n x n matrix lies in panels.
std::size_t panel_place(std::int64_t n, std::int64_t k, std::int64_t size) { return static_cast<std::size_t>((n / 16 * size + k) * 16 + n % 16); }
}  // namespace

void Muon::orthogonalise(std::vector<float>& values, std::int64_t rows, std::int64_t cols) {
  Device& device = backend_.device();
  Stream& stream = backend_.stream();
  std::vector<std::int32_t> segments(static_cast<std::size_t>(rows));
  for (std::int64_t t = 0; t < rows; ++t) segments[static_cast<std::size_t>(t)] = static_cast<std::int32_t>(t / kGradientBlock);
  const Buffer segment = device.upload(segments, rows, 1, MemoryCategory::workspace);
  const std::int64_t packed = (cols + 15) / 16 * 16 * cols;
  Buffer z = device.upload(values, rows, cols, MemoryCategory::workspace), next = device.allocate(DType::f32, rows, cols, MemoryCategory::workspace);
  const Buffer gram = device.allocate_zero(DType::f32, 1, packed, MemoryCategory::workspace),
               plain = device.allocate(DType::f32, cols, cols, MemoryCategory::workspace),
               square = device.allocate(DType::f32, cols, cols, MemoryCategory::workspace),
               polynomial = device.allocate(DType::f32, 1, packed, MemoryCategory::workspace);
  const auto weight = [&](const Buffer& buffer) { return PackedWeight{buffer.view(), cols, cols}; };
  std::vector<float> a(static_cast<std::size_t>(cols * cols));
  for (int step = 0; step < kSteps; ++step) {
    LinearBackwardWeight product;
    product.gradient = gram.view();
    product.dy = product.x = z.view();
    product.w = weight(gram);
    product.segment = segment.view();
    backend_.launch(&KernelTable::linear_backward_weight, product);
    std::vector<float> panels = stream.read(gram.view()).get();
    for (std::int64_t n = 0; n < cols; ++n)
      for (std::int64_t k = 0; k < cols; ++k) a[static_cast<std::size_t>(n * cols + k)] = panels[panel_place(n, k, cols)];
    stream.write(plain.view(), a);
    // A is symmetric to the bit, so A A^T is A A.
    backend_.launch(&KernelTable::linear_forward, LinearForward{square.view(), plain.view(), weight(gram)});
    const std::vector<float> squared = stream.read(square.view()).get();
    for (std::int64_t n = 0; n < cols; ++n)
      for (std::int64_t k = 0; k < cols; ++k) {
        const auto at = static_cast<std::size_t>(n * cols + k);
        const float c = std::fma(kC, squared[at], kB * a[at]);
        panels[panel_place(n, k, cols)] = n == k ? c + kA : c;
      }
    stream.write(polynomial.view(), panels);
    backend_.launch(&KernelTable::linear_forward, LinearForward{next.view(), z.view(), weight(polynomial)});
    std::swap(z, next);
  }
  values = stream.read(z.view()).get();
}

Muon::Whole Muon::put_together(const Parameter& p, std::vector<float> own, Communicator* group) {
  if (!group) return {std::move(own), p.outputs, p.inputs};
  const bool by_inputs = p.split == ParameterSplit::inputs;
  const std::vector<std::string> parts = group->gather_host(std::string(reinterpret_cast<const char*>(own.data()), own.size() * sizeof(float)));
  const auto part_width = [&](std::size_t rank) {  // inputs, or outputs, of a rank
    const auto size = static_cast<std::int64_t>(parts[rank].size() / sizeof(float));
    return size / std::max<std::int64_t>(1, by_inputs ? p.outputs : p.inputs);
  };
  Whole whole{{}, by_inputs ? p.outputs : 0, by_inputs ? 0 : p.inputs};
  std::int64_t& length = by_inputs ? whole.inputs : whole.outputs;
  for (std::size_t r = 0; r < parts.size(); ++r) {
    if (static_cast<int>(r) == group->rank()) (by_inputs ? whole.input : whole.output) = length;
    length += part_width(r);
  }
  whole.values.resize(static_cast<std::size_t>(whole.outputs * whole.inputs));
  std::int64_t begin = 0;
  for (std::size_t r = 0; r < parts.size(); begin += part_width(r), ++r) {
    const std::int64_t rows = by_inputs ? whole.outputs : part_width(r), cols = by_inputs ? part_width(r) : whole.inputs;
    for (std::int64_t n = 0; n < rows && cols > 0; ++n)
      std::memcpy(&whole.values[static_cast<std::size_t>(by_inputs ? n * whole.inputs + begin : (begin + n) * cols)],
                  parts[r].data() + static_cast<std::size_t>(n * cols) * sizeof(float), static_cast<std::size_t>(cols) * sizeof(float));
  }
  return whole;
}

void Muon::step(const Parameter& p, const MuonViews& views, Communicator* group) {
  Stream& stream = backend_.stream();
  std::vector<float> master = stream.read(views.master).get(), momentum = stream.read(views.momentum).get();
  const std::vector<float> gradient = stream.read(views.gradient).get();
  if (backend_.device().counting()) return;
  const float beta = parameters_.beta, rest = 1.0f - beta;
  // f(place in the parameter, output, input) for this rank's elements of an item.
  const auto each = [&](std::int64_t item, const auto& f) {
    for (std::int64_t n = 0; n < p.outputs; ++n)
      for (std::int64_t k = 0; k < p.inputs; ++k) f(static_cast<std::size_t>(p.offset(item, n, k)), n, k);
  };
  for (std::int64_t item = 0; item < p.count; ++item) {
    std::vector<float> own(static_cast<std::size_t>(p.outputs * p.inputs));
    each(item, [&](std::size_t at, std::int64_t n, std::int64_t k) {
      const float g = rest * (gradient[at] * parameters_.factor);
      momentum[at] = std::fma(beta, momentum[at], g);
      own[static_cast<std::size_t>(n * p.inputs + k)] = std::fma(beta, momentum[at], g);
    });
    const Whole u = put_together(p, std::move(own), group);
    const bool tall = u.outputs >= u.inputs;
    const std::int64_t rows = std::max(u.outputs, u.inputs), cols = std::min(u.outputs, u.inputs);
    if (cols == 0) continue;
    const double shape = tall ? static_cast<double>(u.outputs) / static_cast<double>(u.inputs) : 1.0;
    const auto rate = static_cast<float>(parameters_.learning_rate * std::sqrt(shape));
    std::vector<float> z(static_cast<std::size_t>(rows * cols));
    double squares = 0;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c) {
        const float value = u.values[static_cast<std::size_t>(tall ? r * cols + c : c * rows + r)];
        z[static_cast<std::size_t>(r * cols + c)] = value;
        squares += static_cast<double>(value) * static_cast<double>(value);
      }
    const auto norm = static_cast<float>(std::max(std::sqrt(squares), kSmallestNorm));
    for (float& value : z) value /= norm;
    orthogonalise(z, rows, cols);
    each(item, [&](std::size_t at, std::int64_t n, std::int64_t k) {
      const std::int64_t output = u.output + n, input = u.input + k;
      master[at] -= rate * z[static_cast<std::size_t>(tall ? output * cols + input : input * cols + output)];
    });
  }
  stream.write(views.momentum, momentum);
  stream.write(views.master_out, master);
  if (views.compute_out) stream.write(views.compute_out, master);
}

}  // namespace lockstep
