// Implementation of optimizer.h.
#include "kernels/kernel_parts.h"
#include "kernels/optimizer/adamw_step.h"
#include "kernels/optimizer/merged_bins.h"

namespace lockstep {

inline constexpr std::int64_t kOptimizerRange = 16384;  // elements of one task

// Squares of elements [begin, end), deposited in their lanes.
template <class V>
AccumulatorVec<V> square_range(const typename V::Elem* g, std::int64_t begin, std::int64_t end) {
  AccumulatorVec<V> bins = AccumulatorVec<V>::zero();
  int deposits = 0;
  for (std::int64_t i = begin; i < end; i += 16) {
    fetch_ahead(g + i);
    const V x = V::load_partial(g + i, lanes_left(end, i));
    if constexpr (std::is_same_v<typename V::Elem, Traced>) {
      for (int l = 0; l < 16; ++l) bins.deposit_lane(l, double{x.lane[l].value} * double{x.lane[l].value}, x.lane[l]);
    } else {
      const auto wide = to_double(x);
      bins.deposit(wide * wide);  // 48 bits: exact
    }
    if (++deposits == kDepositsBeforeCarry) bins.normalise(), deposits = 0;
  }
  bins.normalise();
  return bins;
}

// What an element takes in a kernel that reads and writes some numbers of each, as multiply-adds of products: memory's time.
constexpr std::int64_t kElementAdds = 256;

template <class V>
void square_sum(const SquareSum& op, ThreadPool& pool) {
  using Bins = AccumulatorVec<V>;
  using Storage = typename Bins::Storage;
  std::int64_t ranges = 0;
  for (const View& g : op.gradients) ranges += (g.size() + kOptimizerRange - 1) / kOptimizerRange;
  Storage* partial = thread_scratch<Storage>(static_cast<std::size_t>(ranges * Bins::kStorage));
  pool.run(ranges, [&](std::int64_t index) {
    std::int64_t range = index;
    std::size_t tensor = 0;
    for (;; ++tensor) {
      const std::int64_t count = (op.gradients[tensor].size() + kOptimizerRange - 1) / kOptimizerRange;
      if (range < count) break;
      range -= count;
    }
    const View& g = op.gradients[tensor];
    square_range<V>(elements<V>(g), range * kOptimizerRange, std::min(g.size(), (range + 1) * kOptimizerRange)).store(partial + index * Bins::kStorage);
  });
  MergedBins<V> sum;
  if constexpr (std::is_same_v<typename V::Elem, Traced>) {
    std::uint64_t hash = 0;
    for (std::int64_t i = 0; i < ranges * Bins::kStorage; ++i) {
      sum.add(partial[i].bin[0], partial[i].bin[1], partial[i].bin[2]);
      hash += partial[i].hash;
    }
    if (op.parts)
      for (std::int64_t r = 0; r < op.parts.rows; ++r) {
        const Storage& part = device_pointer<Storage>(op.parts)[r * Bins::kStorage];
        sum.add(part.bin[0], part.bin[1], part.bin[2]);
        hash += part.hash;
      }
    if (op.sum) {
      Storage* lanes = device_pointer<Storage>(op.sum);
      for (int i = 0; i < Bins::kStorage; ++i) lanes[i] = Storage{};
      for (int b = 0; b < 3; ++b) lanes[0].bin[b] = sum.bin[b];
      lanes[0].hash = hash;
    }
    if (op.norm) *elements<V>(op.norm) = {static_cast<float>(__builtin_sqrt(sum.total())), operation_hash(Operation::sqrt, mix_hash(hash, 0))};
  } else {
    for (std::int64_t r = 0; r < ranges; ++r) {
      const double* bins = partial + r * Bins::kStorage;
      for (int lane = 0; lane < 16; ++lane) sum.add(bins[lane], bins[16 + lane], bins[32 + lane]);
    }
    if (op.parts)
      for (std::int64_t r = 0; r < op.parts.rows; ++r) {
        const double* part = device_pointer<double>(op.parts) + r * Bins::kStorage;
        sum.add(part[0], part[16], part[32]);
      }
    if (op.sum) {
      double* lanes = device_pointer<double>(op.sum);
      for (int i = 0; i < Bins::kStorage; ++i) lanes[i] = 0;
      for (int b = 0; b < 3; ++b) lanes[16 * b] = sum.bin[b];
    }
    if (op.norm) *elements<V>(op.norm) = static_cast<float>(__builtin_sqrt(sum.total()));
  }
}

// One vector of AdamW; `lanes` is 16 but at the end of a tensor.
template <class V>
inline void adamw_step(const AdamW& op, const AdamWConstants<V>& c, std::int64_t i, int lanes) {
  const auto load = [&](const View& v) {
    fetch_ahead(elements<V>(v) + i);
    return V::load_partial(elements<V>(v) + i, lanes);
  };
  const AdamWElements<V> next = adamw_elements(c, {load(op.master), load(op.m), load(op.v)}, load(op.gradient));
  next.m.store_partial(elements<V>(op.m) + i, lanes);
  next.v.store_partial(elements<V>(op.v) + i, lanes);
  next.master.store_partial(elements<V>(op.master_out) + i, lanes);
  if (!op.compute_out) return;
  if (op.compute_out.dtype == DType::bf16 && lanes == 16) next.master.store_half(device_pointer<typename V::Half>(op.compute_out) + i);
  else store_as(op.compute_out, i, next.master, lanes);
}

template <class V>
void adamw(const AdamW& op, ThreadPool& pool) {
  const std::int64_t n = op.master.size();
  const auto c = AdamWConstants<V>::of(op, op.max_norm > 0 ? elements<V>(op.norm) : nullptr);
  run_in_parts(pool, (n + kOptimizerRange - 1) / kOptimizerRange, kOptimizerRange * kElementAdds, [&](std::int64_t range) {
    const std::int64_t end = std::min(n, (range + 1) * kOptimizerRange);
    std::int64_t i = range * kOptimizerRange;
    for (; i + 16 <= end; i += 16) adamw_step<V>(op, c, i, 16);
    if (i < end) adamw_step<V>(op, c, i, lanes_left(end, i));
  });
}

template <class V>
void finish_bins(const FinishBins& op, ThreadPool& pool) {
  using Bins = AccumulatorVec<V>;
  const std::int64_t row = op.row > 0 ? op.row : op.gradient.size();  // packed: one row
  const std::int64_t groups = (row + 15) / 16, count = op.gradient.size() / std::max<std::int64_t>(1, row) * groups;
  constexpr std::int64_t kGroups = 512;
  run_in_parts(pool, (count + kGroups - 1) / kGroups, kGroups * 16 * kElementAdds, [&](std::int64_t block) {
    for (std::int64_t g = block * kGroups; g < std::min(count, block * kGroups + kGroups); ++g) {
      auto* place = device_pointer<typename Bins::Storage>(op.bins) + g * Bins::kStorage;
      const std::int64_t i = g % groups * 16;
      Bins bins = Bins::load(place);
      bins.normalise();
      bins.total().store_partial(elements<V>(op.gradient) + g / groups * row + i, lanes_left(row, i));
      Bins::zero().store(place);
    }
  });
}

LOCKSTEP_INSTANTIATE(square_sum, SquareSum)
LOCKSTEP_INSTANTIATE(adamw, AdamW)
LOCKSTEP_INSTANTIATE(finish_bins, FinishBins)

}  // namespace lockstep
