// Implementation of layer_norm.h.
#include "kernels/row_tools.h"

namespace lockstep {

template <class E>
struct LayerNormStatistics {
  E mean, r;  // r = 1 / sqrt(var + eps)
};
template <class V>
LayerNormStatistics<typename V::Elem> layer_norm_statistics(const typename V::Elem* x, std::int64_t n, float eps) {
  using E = typename V::Elem;
  const E count = element<E>(static_cast<float>(n));
  const V one = V::set1(1.0f);
  const E mean = dot16_of<V>(
                     n, [&](std::int64_t i, int lanes) { return V::load_partial(x + i, lanes); }, [&](std::int64_t, int) { return one; }) /
                 count;
  const V m = V::set1(mean);
  const auto centred = [&](std::int64_t i, int lanes) { return V::load_partial(x + i, lanes) - m; };
  const E variance = dot16_of<V>(n, centred, centred) / count;
  return {mean, element<E>(1.0f) / square_root(variance + element<E>(eps))};
}

template <class V>
void layer_norm_forward(const LayerNormForward& op, ThreadPool& pool) {
  const std::int64_t n = op.x.cols;
  with_stored<V>(op.w, [&](const auto* w) {
    with_stored<V>(op.b, [&](const auto* b) {
      pool.run((op.x.rows + 15) / 16, [&](std::int64_t block) {
        for (std::int64_t t = block * 16; t < std::min(op.x.rows, block * 16 + 16); ++t) {
          const auto* x = elements<V>(op.x) + t * op.x.stride;
          auto* y = elements<V>(op.y) + t * op.y.stride;
          const auto row = layer_norm_statistics<V>(x, n, op.eps);
          const V mean = V::set1(row.mean), r = V::set1(row.r);
          for (std::int64_t i = 0; i < n; i += 16) {
            const int lanes = lanes_left(n, i);
            const V c = V::load_partial(x + i, lanes) - mean;
            fma(c * r, V::load_partial(w + i, lanes), V::load_partial(b + i, lanes)).store_partial(y + i, lanes);
          }
        }
      });
    });
  });
}

template <class V>
void layer_norm_backward(const LayerNormBackward& op, ThreadPool& pool) {
  using E = typename V::Elem;
  const std::int64_t T = op.x.rows, n = op.x.cols;
  // Mean and r of each row; of the calling thread, written by all.
  auto* statistics = thread_scratch<LayerNormStatistics<E>>(static_cast<std::size_t>(T));
  with_stored<V>(op.w, [&](const auto* w) {
    pool.run((T + 15) / 16, [&](std::int64_t block) {
      for (std::int64_t t = block * 16; t < std::min(T, block * 16 + 16); ++t) {
        const E* x = elements<V>(op.x) + t * op.x.stride;
        statistics[t] = layer_norm_statistics<V>(x, n, op.eps);
        if (!op.dx) continue;
        const E* dy = elements<V>(op.dy) + t * op.dy.stride;
        E* dx = elements<V>(op.dx) + t * op.dx.stride;
        const V mean = V::set1(statistics[t].mean), r = V::set1(statistics[t].r), one = V::set1(1.0f);
        const E count = element<E>(static_cast<float>(n));
        const auto g = [&](std::int64_t i, int lanes) { return V::load_partial(dy + i, lanes) * V::load_partial(w + i, lanes); };
        const auto normalised = [&](std::int64_t i, int lanes) { return (V::load_partial(x + i, lanes) - mean) * r; };
        const V mean_g = V::set1(dot16_of<V>(n, g, [&](std::int64_t, int) { return one; }) / count);
        const V mean_gn = V::set1(dot16_of<V>(n, g, normalised) / count);
        for (std::int64_t i = 0; i < n; i += 16) {
          const int lanes = lanes_left(n, i);
          (r * ((g(i, lanes) - mean_g) - normalised(i, lanes) * mean_gn)).store_partial(dx + i, lanes);
        }
      }
    });
  });
  if (!op.gradient_w && !op.bins_w) return;

  const bool finish = op.finish || !op.bins_w;
  const std::int32_t* segment = ints(op.segment);
  pool.run((n + 15) / 16, [&](std::int64_t column) {
    const std::int64_t i = column * 16;
    const int lanes = lanes_left(n, i);
    const V one = V::set1(1.0f);
    BinGroup<V> group_w(op.bins_w, 0, column), group_b(op.bins_b, 0, column);
    ColumnChains<V> chains_w, chains_b;
    for (std::int64_t t = 0; t < T;) {
      const std::int64_t begin = t;
      chains_w.clear();
      chains_b.clear();
      for (; t < T && segment[t] == segment[begin]; ++t) {
        const V dy = V::load_partial(elements<V>(op.dy) + t * op.dy.stride + i, lanes);
        const V c = V::load_partial(elements<V>(op.x) + t * op.x.stride + i, lanes) - V::set1(statistics[t].mean);
        chains_w.add(t - begin, dy, c * V::set1(statistics[t].r));
        chains_b.add(t - begin, dy, one);
      }
      group_w.deposit(chains_w.sum());
      group_b.deposit(chains_b.sum());
    }
    group_w.close(finish, finish ? elements<V>(op.gradient_w) + i : nullptr, lanes);
    group_b.close(finish, finish ? elements<V>(op.gradient_b) + i : nullptr, lanes);
  });
}

LOCKSTEP_INSTANTIATE(layer_norm_forward, LayerNormForward)
LOCKSTEP_INSTANTIATE(layer_norm_backward, LayerNormBackward)

}  // namespace lockstep
