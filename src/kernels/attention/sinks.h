// The learned logits of gpt_oss that join a row's softmax (attention.h), for attention.inl and single_rows.h. Templates over V.
#pragma once
#include "kernels/cache/entries.h"

namespace lockstep {

// The sinks of some heads in the forward of a row: joins each head's to its state after the last block. `alpha` is what the head's sum of
// values is to be multiplied with.
template <class V>
struct SinkState {
  using Elem = typename V::Elem;
  Elem *sink, *alpha, *term;
  bool there;
  static std::int64_t scratch_size(std::int64_t heads) { return 3 * padded16(heads); }
  SinkState(const View& sinks, std::int64_t first, std::int64_t heads, Elem* scratch)
      : sink(scratch), alpha(scratch + padded16(heads)), term(scratch + 2 * padded16(heads)), there(static_cast<bool>(sinks)) {
    if (!there) return;
    with_stored<V>(sinks, [&](const auto* from) {
      for (std::int64_t h = 0; h < heads; h += 16) V::load_partial(from + first + h, lanes_left(heads, h)).store(sink + h);
    });
  }
  void join(std::int64_t heads, Elem* largest, Elem* denominator) const {
    for (std::int64_t h = 0; h < heads; ++h) {
      const Elem old = largest[h];
      largest[h] = sink[h] > old ? sink[h] : old;
      alpha[h] = old - largest[h];
      term[h] = sink[h] - largest[h];
    }
    exp_all<V>(alpha, heads);
    exp_all<V>(term, heads);
    for (std::int64_t h = 0; h < heads; ++h) denominator[h] = fused(denominator[h], alpha[h], term[h]);
  }
};

}  // namespace lockstep
