// Implementation of rope.h. The pairs form is scalar: it needs neighbouring lanes, and its rotary part is small.
namespace lockstep {

// One row in the half form.
template <class V>
void rope_half_row(const Rope& op, const typename V::Elem* turn, const typename V::Elem* x, typename V::Elem* y) {
  const std::int64_t half = op.rotary / 2;
  const V minus_one = V::set1(-1.0f);
  for (std::int64_t i = 0; i < half; i += 16) {
    const int lanes = lanes_left(half, i);
    const V c = V::load_partial(turn + i, lanes);
    V s = V::load_partial(turn + half + i, lanes);
    if (op.inverse) s = s * minus_one;
    const V minus_s = s * minus_one;
    for (std::int64_t h = 0; h < op.heads; ++h) {
      const V a = V::load_partial(x + h * op.x_step + i, lanes), b = V::load_partial(x + h * op.x_step + half + i, lanes);
      fma(a, c, b * minus_s).store_partial(y + h * op.y_step + i, lanes);
      fma(b, c, a * s).store_partial(y + h * op.y_step + half + i, lanes);
    }
  }
}

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
      if (op.half) rope_half_row<V>(op, turn, x, y);
      for (std::int64_t i = 0; i < (op.half ? 0 : op.rotary); i += 2) {
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
