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
void scale(const Scale& op, ThreadPool& pool) {
  const std::int64_t n = op.y.cols;
  pool.run((op.y.rows + 15) / 16, [&](std::int64_t block) {
    const V factor = V::set1(op.factor);
    for (std::int64_t t = block * 16; t < std::min(op.y.rows, block * 16 + 16); ++t) {
      const auto* x = elements<V>(op.x) + t * op.x.stride;
      auto* y = elements<V>(op.y) + t * op.y.stride;
      for (std::int64_t i = 0; i < n; i += 16) {
        const int lanes = lanes_left(n, i);
        (V::load_partial(x + i, lanes) * factor).store_partial(y + i, lanes);
      }
    }
  });
}

// What a clamped swiglu computes from a gate and an up value.
template <class V>
struct ClampedGate {
  V gate, up, gained, s;  // up: u' + 1; gained: gain g'
  ClampedGate(const V& g, const V& u, const V& gain, const V& limit) {
    const V low = V::zero() - limit, high = select_gt(u, limit, limit, u);
    gate = select_gt(g, limit, limit, g);
    up = select_gt(low, high, low, high) + V::set1(1.0f);
    gained = gain * gate;
    s = sigmoid(gained);
  }
};

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
        fetch_ahead(gate + i), fetch_ahead(up + i);
        const V g = V::load_partial(gate + i, lanes);
        if (op.limit > 0) {
          const ClampedGate<V> c(g, V::load_partial(up + i, lanes), V::set1(op.gain), V::set1(op.limit));
          ((c.gate * c.s) * c.up).store_partial(y + i, lanes);
          continue;
        }
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
        fetch_ahead(gate + i), fetch_ahead(up + i), fetch_ahead(dy + i);
        const V g = V::load_partial(gate + i, lanes), u = V::load_partial(up + i, lanes), d = V::load_partial(dy + i, lanes);
        if (op.limit > 0) {
          const V limit = V::set1(op.limit), zero = V::zero();
          const ClampedGate<V> c(g, u, V::set1(op.gain), limit);
          const V du = d * (c.gate * c.s), dg = (d * c.up) * (c.s * fma(c.gained, one - c.s, one));
          select_gt(u, limit, zero, select_gt(zero - limit, u, zero, du)).store_partial(dup + i, lanes);
          select_gt(g, limit, zero, dg).store_partial(dgate + i, lanes);
          continue;
        }
        const V s = sigmoid(g);
        (d * (g * s)).store_partial(dup + i, lanes);
        ((d * u) * (s * fma(g, one - s, one))).store_partial(dgate + i, lanes);
      }
    }
  });
}

LOCKSTEP_INSTANTIATE(add, Add)
LOCKSTEP_INSTANTIATE(scale, Scale)
LOCKSTEP_INSTANTIATE(swiglu_forward, SwigluForward)
LOCKSTEP_INSTANTIATE(swiglu_backward, SwigluBackward)

}  // namespace lockstep
