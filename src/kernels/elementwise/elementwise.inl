// Implementation of elementwise.h.
namespace lockstep {

template <class V>
void add(const Add& op, ThreadPool& pool) {
  const std::int64_t n = op.y.cols;
  pool.run((op.y.rows + 15) / 16, [&](std::int64_t block) {
    for (std::int64_t t = block * 16; t < std::min(op.y.rows, block * 16 + 16); ++t) {
      const auto* a = elements<V>(op.a) + t * op.a.stride;
      const auto* b = elements<V>(op.b) + t * op.b.stride;
      auto* y = elements<V>(op.y) + t * op.y.stride;
      for (std::int64_t i = 0; i < n; i += 16) {
        const int lanes = lanes_left(n, i);
        (V::load_partial(a + i, lanes) + V::load_partial(b + i, lanes)).store_partial(y + i, lanes);
      }
    }
  });
}

template <class V>
void swiglu_forward(const SwigluForward& op, ThreadPool& pool) {
  const std::int64_t n = op.y.cols;
  pool.run((op.y.rows + 15) / 16, [&](std::int64_t block) {
    for (std::int64_t t = block * 16; t < std::min(op.y.rows, block * 16 + 16); ++t) {
      const auto* gate = elements<V>(op.gate) + t * op.gate.stride;
      const auto* up = elements<V>(op.up) + t * op.up.stride;
      auto* y = elements<V>(op.y) + t * op.y.stride;
      for (std::int64_t i = 0; i < n; i += 16) {
        const int lanes = lanes_left(n, i);
        const V g = V::load_partial(gate + i, lanes);
        ((g * sigmoid(g)) * V::load_partial(up + i, lanes)).store_partial(y + i, lanes);
      }
    }
  });
}

template <class V>
void swiglu_backward(const SwigluBackward& op, ThreadPool& pool) {
  const std::int64_t n = op.dy.cols;
  pool.run((op.dy.rows + 15) / 16, [&](std::int64_t block) {
    for (std::int64_t t = block * 16; t < std::min(op.dy.rows, block * 16 + 16); ++t) {
      const auto* gate = elements<V>(op.gate) + t * op.gate.stride;
      const auto* up = elements<V>(op.up) + t * op.up.stride;
      const auto* dy = elements<V>(op.dy) + t * op.dy.stride;
      auto* dgate = elements<V>(op.dgate) + t * op.dgate.stride;
      auto* dup = elements<V>(op.dup) + t * op.dup.stride;
      const V one = V::set1(1.0f);
      for (std::int64_t i = 0; i < n; i += 16) {
        const int lanes = lanes_left(n, i);
        const V g = V::load_partial(gate + i, lanes), u = V::load_partial(up + i, lanes), d = V::load_partial(dy + i, lanes);
        const V s = sigmoid(g);
        (d * (g * s)).store_partial(dup + i, lanes);
        ((d * u) * (s * fma(g, one - s, one))).store_partial(dgate + i, lanes);
      }
    }
  });
}

LOCKSTEP_INSTANTIATE(add, Add)
LOCKSTEP_INSTANTIATE(swiglu_forward, SwigluForward)
LOCKSTEP_INSTANTIATE(swiglu_backward, SwigluBackward)

}  // namespace lockstep
