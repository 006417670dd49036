// Implementation of rope.h. Scalar: the pairs form needs neighbouring lanes, and the rotary part is small.
namespace lockstep {

template <class V>
void rope(const Rope& op, ThreadPool& pool) {
  using Elem = typename V::Elem;
  constexpr std::int64_t kRowBlock = 32;
  const std::int64_t rows = op.x.rows;
  pool.run((rows + kRowBlock - 1) / kRowBlock, [&](std::int64_t block) {
    const Elem minus_one = element<Elem>(-1.0f);
    for (std::int64_t t = block * kRowBlock; t < std::min(rows, (block + 1) * kRowBlock); ++t) {
      const Elem* turn = elements<V>(op.table) + ints(op.position)[t * op.position.stride] * op.table.stride;
      const Elem* x = elements<V>(op.x) + t * op.x.stride + op.x_offset;
      Elem* y = elements<V>(op.y) + t * op.y.stride + op.y_offset;
      for (std::int64_t i = 0; i < op.rotary; i += 2) {
        const Elem c = turn[i];
        const Elem s = op.inverse ? turn[i + 1] * minus_one : turn[i + 1];
        const Elem minus_s = s * minus_one;
        for (std::int64_t h = 0; h < op.heads; ++h) {
          const Elem a = x[h * op.x_step + i], b = x[h * op.x_step + i + 1];
          y[h * op.y_step + i] = fused(a, c, b * minus_s);  // b * -s is -(b * s) to the bit
          y[h * op.y_step + i + 1] = fused(b, c, a * s);
        }
      }
      for (std::int64_t h = 0; h < op.heads; ++h) {
        const Elem* from = x + h * op.x_step + op.rotary;
        Elem* to = y + h * op.y_step + op.rotary;
        if (from != to)
          for (std::int64_t i = 0; i < op.pass; ++i) to[i] = from[i];
      }
    }
  });
}

LOCKSTEP_INSTANTIATE(rope, Rope)

}  // namespace lockstep
