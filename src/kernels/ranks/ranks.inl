// Implementation of ranks.h.
namespace lockstep {

template <class V>
static void join_group(typename AccumulatorVec<V>::Storage* into, const typename AccumulatorVec<V>::Storage* from) {
  if constexpr (std::is_same_v<typename AccumulatorVec<V>::Storage, double>) {
    auto sum = AccumulatorVec<V>::load(into);
    const auto other = AccumulatorVec<V>::load(from);
    sum.bin0 = sum.bin0 + other.bin0;
    sum.bin1 = sum.bin1 + other.bin1;
    sum.bin2 = sum.bin2 + other.bin2;
    sum.normalise();
    sum.store(into);
  } else {
    auto sum = AccumulatorVec<V>::load(into);
    const auto other = AccumulatorVec<V>::load(from);
    for (int i = 0; i < 16; ++i) {
      for (int b = 0; b < 3; ++b) sum.lane[i].bin[b] += other.lane[i].bin[b];
      sum.lane[i].hash += other.lane[i].hash;
    }
    sum.normalise();
    sum.store(into);
  }
}

template <class V>
void join_bins(const JoinBins& op, ThreadPool& pool) {
  using Storage = typename AccumulatorVec<V>::Storage;
  constexpr std::int64_t kStorage = AccumulatorVec<V>::kStorage, kGroups = 512;
  const std::int64_t groups = op.into.cols / 16, count = op.into.rows * groups;
  pool.run((count + kGroups - 1) / kGroups, [&](std::int64_t block) {
    for (std::int64_t g = block * kGroups; g < std::min(count, block * kGroups + kGroups); ++g) {
      const std::int64_t row = g / groups, column = g % groups;
      join_group<V>(device_pointer<Storage>(op.into) + (row * op.into.stride / 16 + column) * kStorage,
                    device_pointer<const Storage>(op.from) + (row * op.from.stride / 16 + column) * kStorage);
    }
  });
}

template <class V>
void pick(const Pick& op, ThreadPool& pool) {
  const std::int64_t T = op.y.rows, n = op.y.cols;
  const bool one = op.index.cols == 1;
  pool.run((T + 15) / 16, [&](std::int64_t block) {
    for (std::int64_t t = block * 16; t < std::min(T, block * 16 + 16); ++t) {
      const typename V::Elem* row = nullptr;
      for (std::int64_t j = 0; j < n; ++j) {
        if (j == 0 || !one) {
          const std::int64_t index = ints(op.index)[t * op.index.stride + j];
          std::int64_t rank = 0;
          while (index >= op.bounds[static_cast<std::size_t>(rank) + 1]) ++rank;
          row = elements<V>(op.parts) + (rank * T + t) * op.parts.stride;
        }
        elements<V>(op.y)[t * op.y.stride + j] = row[j];
      }
    }
  });
}

LOCKSTEP_INSTANTIATE(join_bins, JoinBins)
LOCKSTEP_INSTANTIATE(pick, Pick)

}  // namespace lockstep
