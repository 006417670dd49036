// Implementation of sharing.h.
namespace lockstep {

template <class V>
void gather_rows(const GatherRows& op, ThreadPool& pool) {
  const std::int64_t rows = op.y.rows, n = op.y.cols;
  const auto gather = [&](auto* y, const auto* x) {
    pool.run((rows + 31) / 32, [&](std::int64_t block) {
      for (std::int64_t t = block * 32; t < std::min(rows, block * 32 + 32); ++t)
        std::copy_n(x + std::int64_t{ints(op.row_of)[t * op.row_of.stride]} * op.x.stride, n, y + t * op.y.stride);
    });
  };
  if (op.x.dtype == DType::i32) gather(ints(op.y), ints(op.x));
  else gather(elements<V>(op.y), elements<V>(op.x));
}

template <class V>
void slot_source(const SlotSource& op, ThreadPool&) {
  for (std::int64_t t = 0; t < op.slot_of.rows; ++t) {
    const std::int32_t* from = ints(op.from) + std::int64_t{ints(op.row_of)[t * op.row_of.stride]} * op.from.stride;
    for (std::int64_t j = 0; j < op.slot_of.cols; ++j) ints(op.source)[ints(op.slot_of)[t * op.slot_of.stride + j]] = from[j];
  }
}

template <class V>
void sum_shared_rows(const SumSharedRows& op, ThreadPool& pool) {
  const std::int64_t rows = op.y.rows, n = op.y.cols;
  pool.run((rows + 15) / 16, [&](std::int64_t block) {
    for (std::int64_t r = block * 16; r < std::min(rows, block * 16 + 16); ++r) {
      const std::int32_t begin = ints(op.begin)[r * op.begin.stride], end = ints(op.begin)[(r + 1) * op.begin.stride];
      const auto part = [&](std::int32_t i, std::int64_t c, int lanes) {
        return V::load_partial(elements<V>(op.x) + std::int64_t{ints(op.row)[i * op.row.stride]} * op.x.stride + c, lanes);
      };
      for (std::int64_t c = 0; c < n; c += 16) {
        const int lanes = lanes_left(n, c);
        V sum = V::zero();
        if (end - begin == 1) {
          sum = part(begin, c, lanes);
        } else if (end > begin) {
          auto total = AccumulatorVec<V>::zero();
          for (std::int32_t i = begin; i < end; ++i) {
            total.deposit(part(i, c, lanes));
            if ((i - begin + 1) % kDepositsBeforeCarry == 0) total.normalise();
          }
          total.normalise();
          sum = total.total();
        }
        sum.store_partial(elements<V>(op.y) + r * op.y.stride + c, lanes);
      }
    }
  });
}

LOCKSTEP_INSTANTIATE(gather_rows, GatherRows)
LOCKSTEP_INSTANTIATE(slot_source, SlotSource)
LOCKSTEP_INSTANTIATE(sum_shared_rows, SumSharedRows)

}  // namespace lockstep
