// Implementation of rms_norm.h.
#include "kernels/row_tools.h"

namespace lockstep {

// 1 / sqrt(mean(x^2) + eps) of one row.
template <class V>
typename V::Elem rms_norm_scale(const typename V::Elem* x, std::int64_t n, float eps) {
  using E = typename V::Elem;
  const E mean = dot16<V>(x, x, n) / element<E>(static_cast<float>(n));
  return element<E>(1.0f) / square_root(mean + element<E>(eps));
}

// Row t of what is normed: x, or its sum with `addend`, which is written here and is in the first cache when it is read again.
template <class V>
const typename V::Elem* rms_norm_row(const RmsNormForward& op, std::int64_t t) {
  const auto* x = elements<V>(op.x) + t * op.x.stride;
  if (!op.addend) return x;
  const auto* addend = elements<V>(op.addend) + t * op.addend.stride;
  auto* sum = elements<V>(op.sum) + t * op.sum.stride;
  for (std::int64_t i = 0; i < op.x.cols; i += 16) {
    const int lanes = lanes_left(op.x.cols, i);
    (V::load_partial(x + i, lanes) + V::load_partial(addend + i, lanes)).store_partial(sum + i, lanes);
  }
  return sum;
}

template <class V>
void rms_norm_forward(const RmsNormForward& op, ThreadPool& pool) {
  const std::int64_t n = op.x.cols;
  with_stored<V>(op.w, [&](const auto* w) {
    pool.run((op.x.rows + 15) / 16, [&](std::int64_t block) {
      for (std::int64_t t = block * 16; t < std::min(op.x.rows, block * 16 + 16); ++t) {
        const auto* x = rms_norm_row<V>(op, t);
        auto* y = elements<V>(op.y) + t * op.y.stride;
        const V r = V::set1(rms_norm_scale<V>(x, n, op.eps));
        for (std::int64_t i = 0; i < n; i += 16) {
          const int lanes = lanes_left(n, i);
          ((V::load_partial(x + i, lanes) * r) * V::load_partial(w + i, lanes)).store_partial(y + i, lanes);
        }
      }
    });
  });
}

template <class V>
void rms_norm_backward(const RmsNormBackward& op, ThreadPool& pool) {
  using E = typename V::Elem;
  const std::int64_t T = op.x.rows, n = op.x.cols;
  E* scale = thread_scratch<E>(static_cast<std::size_t>(T));  // r of each row; of the calling thread, written by all
  with_stored<V>(op.w, [&](const auto* w) {
    pool.run((T + 15) / 16, [&](std::int64_t block) {
      for (std::int64_t t = block * 16; t < std::min(T, block * 16 + 16); ++t) {
        const E* x = elements<V>(op.x) + t * op.x.stride;
        const E* dy = elements<V>(op.dy) + t * op.dy.stride;
        const E* onto = op.onto ? elements<V>(op.onto) + t * op.onto.stride : nullptr;
        E* dx = elements<V>(op.dx) + t * op.dx.stride;
        scale[t] = rms_norm_scale<V>(x, n, op.eps);
        const V r = V::set1(scale[t]);
        const auto g = [&](std::int64_t i, int lanes) { return V::load_partial(dy + i, lanes) * V::load_partial(w + i, lanes); };
        const auto normalised = [&](std::int64_t i, int lanes) { return V::load_partial(x + i, lanes) * r; };
        const V mean = V::set1(dot16_of<V>(n, g, normalised) / element<E>(static_cast<float>(n)));
        for (std::int64_t i = 0; i < n; i += 16) {
          const int lanes = lanes_left(n, i);
          const V own = r * (g(i, lanes) - normalised(i, lanes) * mean);
          if (onto) (V::load_partial(onto + i, lanes) + own).store_partial(dx + i, lanes);
          else own.store_partial(dx + i, lanes);
        }
      }
    });
  });
  if (!op.gradient && !op.bins) return;

  const bool finish = op.finish || !op.bins;
  const std::int32_t* segment = ints(op.segment);
  const std::int64_t heads = op.heads;
  pool.run((n + 15) / 16, [&](std::int64_t column) {
    const std::int64_t i = column * 16;
    const int lanes = lanes_left(n, i);
    BinGroup<V> group(op.bins, 0, column);
    ColumnChains<V> chains;
    for (std::int64_t t = 0; t < T;) {
      const std::int64_t begin = t;
      chains.clear();
      for (; t < T && segment[t / heads] == segment[begin / heads]; ++t)
        chains.add(t - begin, V::load_partial(elements<V>(op.dy) + t * op.dy.stride + i, lanes),
                   V::load_partial(elements<V>(op.x) + t * op.x.stride + i, lanes) * V::set1(scale[t]));
      group.deposit(chains.sum());
    }
    group.close(finish, finish ? elements<V>(op.gradient) + i : nullptr, lanes);
  });
}

LOCKSTEP_INSTANTIATE(rms_norm_forward, RmsNormForward)
LOCKSTEP_INSTANTIATE(rms_norm_backward, RmsNormBackward)

}  // namespace lockstep
