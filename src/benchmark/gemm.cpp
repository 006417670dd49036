#include "benchmark/gemm.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "benchmark/noise.h"
#include "kernels/free_order/free_product.h"
#include "kernels/launch.h"
#include "kernels/linear/linear.h"
#include "numerics/flop.h"

namespace lockstep {
namespace {
// An array of numbers that begins at a cache line, as a device's blocks do: a vector that crosses two lines costs two loads.
class Lines {
 public:
  explicit Lines(const std::vector<float>& values)
      : block_(values.size() + kLine), begin_(kLine - (reinterpret_cast<std::uintptr_t>(block_.data()) / sizeof(float)) % kLine) {
    std::copy(values.begin(), values.end(), data());
  }
  Lines(Lines&&) = default;  // the block stays where it is
  float* data() const { return const_cast<float*>(block_.data()) + begin_; }

 private:
  static constexpr std::size_t kLine = 16;  // numbers
  std::vector<float> block_;
  std::size_t begin_;
};
}  // namespace

GemmTiming time_gemm(const GemmCase& shape, const BackendOptions& machine, const TimeBudget& budget, std::int64_t cold_bytes) {
  Backend backend(machine);
  Device& device = backend.device();
  PackedWeight packed{.outputs = shape.outputs, .inputs = shape.inputs, .maximum_leaves = shape.maximum_leaves};
  packed.bits = shape.weight_bits;
  const std::int64_t size = packed.packed_size(), bytes = shape.weight_bits ? packed.quantised().bytes() : size * (shape.bf16_weights ? 2 : 4);
  const std::int64_t copies = std::max<std::int64_t>(1, (cold_bytes + bytes - 1) / bytes);
  std::vector<float> values = noise(size, 1);
  // Padding is zero in a real weight.
  for (std::int64_t n = shape.outputs; n < packed.panels() * 16; ++n)
    for (std::int64_t k = 0; k < shape.inputs; ++k) values[static_cast<std::size_t>(((n / 16) * shape.inputs + k) * 16 + n % 16)] = 0;
  std::vector<Buffer> weights;
  std::vector<std::uint8_t> integers;
  if (shape.weight_bits) {
    integers.resize(static_cast<std::size_t>(bytes));
    quantise_panels(values.data(), packed.quantised(), integers.data(), 0, packed.panels());
  }
  for (std::int64_t i = 0; i < copies; ++i) {
    if (shape.weight_bits) {
      weights.push_back(device.allocate(DType::u8, 1, bytes, MemoryCategory::weights));
      backend.stream().write(weights.back().view(), integers);
      continue;
    }
    weights.push_back(device.upload(values, 1, size, MemoryCategory::weights, shape.bf16_weights ? DType::bf16 : DType::f32));
  }
  const Buffer x = device.upload(noise(shape.rows * shape.inputs, 2), shape.rows, shape.inputs, MemoryCategory::activations);
  const Buffer y = device.allocate(DType::f32, shape.rows, shape.outputs, MemoryCategory::activations);
  std::size_t turn = 0;
  GemmTiming result{.shape = shape};
  if (shape.free_order) {
    if (shape.weight_bits || shape.bf16_weights) fail(ErrorCode::invalid_argument, "the free order has weights in fp32 alone");
    const Lines from(noise(shape.rows * shape.inputs, 2)), to(std::vector<float>(static_cast<std::size_t>(shape.rows * shape.outputs)));
    std::vector<Lines> of;
    for (std::int64_t i = 0; i < copies; ++i) of.emplace_back(values);
    std::vector<std::function<void()>> ways;
    constexpr std::int64_t kPartInputs = 640;  // the contract's
    std::vector<std::pair<int, std::int64_t>> kinds;
    for (const int accumulators : {1, 2, 4})
      for (const std::int64_t part : {std::int64_t{0}, kPartInputs})
        if (part < shape.inputs) kinds.emplace_back(accumulators, part);
    for (const auto& [accumulators, part] : kinds)
      ways.emplace_back([&, accumulators = accumulators, part = part] {
        free_product({to.data(), from.data(), of[turn++ % of.size()].data(), shape.rows, shape.outputs, shape.inputs, accumulators, part}, backend.isa(),
                     device.threads());
      });
    const std::vector<Timing> times = time_in_turns(budget, ways);
    for (std::size_t i = 0; i < times.size(); ++i)
      if (result.accumulators == 0 || times[i].median < result.time.median)
        result.time = times[i], std::tie(result.accumulators, result.part_inputs) = kinds[i];
  } else {
    result.time = time_repeated(budget, [&] {
      packed.data = weights[turn++ % weights.size()].view();
      backend.launch(&KernelTable::linear_forward, LinearForward{.y = y.view(), .x = x.view(), .w = packed});
    });
  }
  const auto count = [](std::int64_t n) { return static_cast<double>(n); };
  result.gigaflops = product_flop(count(shape.rows), count(shape.outputs) * count(shape.inputs)) / result.time.median / 1e9;
  result.gigabytes_per_second = count(bytes) / result.time.median / 1e9;
  return result;
}

}  // namespace lockstep
