#include "train/optimizers/muon.h"

#include <algorithm>
#include <cmath>

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

void Muon::step(const Parameter& p, const MuonViews& views) {
  Stream& stream = backend_.stream();
  std::vector<float> master = stream.read(views.master).get(), momentum = stream.read(views.momentum).get();
  const std::vector<float> gradient = stream.read(views.gradient).get();
  if (backend_.device().counting()) return;
  const float beta = parameters_.beta, rest = 1.0f - beta;
  const bool tall = p.outputs >= p.inputs;
  const std::int64_t rows = std::max(p.outputs, p.inputs), cols = std::min(p.outputs, p.inputs);
  const double shape = tall ? static_cast<double>(p.outputs) / static_cast<double>(p.inputs) : 1.0;
  const auto rate = static_cast<float>(parameters_.learning_rate * std::sqrt(shape));
  std::vector<float> z(static_cast<std::size_t>(rows * cols));
  // f(place in the parameter, place in z), in the order of z.
  const auto each = [&](std::int64_t item, const auto& f) {
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c)
        f(static_cast<std::size_t>(tall ? p.offset(item, r, c) : p.offset(item, c, r)), static_cast<std::size_t>(r * cols + c));
  };
  for (std::int64_t item = 0; item < p.count; ++item) {
    double squares = 0;
    each(item, [&](std::size_t at, std::size_t place) {
      const float g = rest * (gradient[at] * parameters_.factor);
      momentum[at] = std::fma(beta, momentum[at], g);
      z[place] = std::fma(beta, momentum[at], g);
      squares += static_cast<double>(z[place]) * static_cast<double>(z[place]);
    });
    const auto norm = static_cast<float>(std::max(std::sqrt(squares), kSmallestNorm));
    for (float& value : z) value /= norm;
    orthogonalise(z, rows, cols);
    each(item, [&](std::size_t at, std::size_t place) { master[at] -= rate * z[place]; });
  }
  stream.write(views.momentum, momentum);
  stream.write(views.master_out, master);
  if (views.compute_out) stream.write(views.compute_out, master);
}

}  // namespace lockstep
