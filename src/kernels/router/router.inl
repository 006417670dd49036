// Implementation of router.h.
#include "kernels/router/choice.h"

namespace lockstep {

template <class V>
void router_forward(const RouterForward& op, ThreadPool& pool) {
  using E = typename V::Elem;
  const std::int64_t T = op.logits.rows, experts = op.logits.cols, k = op.expert.cols;
  const E* bias = elements<V>(op.bias);
  pool.run((T + 15) / 16, [&](std::int64_t block) {
    E* score = thread_scratch<E>(static_cast<std::size_t>(2 * experts));
    E* choice = score + experts;
    for (std::int64_t t = block * 16; t < std::min(T, block * 16 + 16); ++t) {
      const E* logits = elements<V>(op.logits) + t * op.logits.stride;
      std::int32_t* chosen = ints(op.expert) + t * op.expert.stride;
      E* weight = elements<V>(op.weight) + t * op.weight.stride;
      for (std::int64_t e = 0; e < experts; e += 16) {
        const int lanes = lanes_left(experts, e);
        const V s = sigmoid(V::load_partial(logits + e, lanes));
        s.store_partial(score + e, lanes);
        (s + V::load_partial(bias + e, lanes)).store_partial(choice + e, lanes);
      }
      // Experts ascending, each inserted behind its equals: value descending, expert ascending.
      const std::int32_t* forced = op.forced ? ints(op.forced) + t * op.forced.stride : nullptr;
      const bool given = forced && forced[0] >= 0;
      if (given) std::copy_n(forced, k, chosen);
      std::int64_t count = 0;
      bool nan = false;
      for (std::int64_t e = 0; e < experts; ++e) {
        nan |= router_is_nan<V>(choice[e]);
        if (given) continue;
        if (count == k && !router_before<V>(choice[e], choice[chosen[k - 1]])) continue;
        std::int64_t at = count < k ? count++ : k - 1;
        for (; at > 0 && router_before<V>(choice[e], choice[chosen[at - 1]]); --at) chosen[at] = chosen[at - 1];
        chosen[at] = static_cast<std::int32_t>(e);
      }
      std::sort(chosen, chosen + k);
      if (nan && op.flags) ints(op.flags)[t * op.flags.stride] |= kRouterNanFlag;

      E sum = element<E>(0.0f);
      for (std::int64_t j = 0; j < k; ++j) sum = sum + score[chosen[j]];
      sum = sum + element<E>(kRouterTiny);
      for (std::int64_t j = 0; j < k; ++j) {
        const E w = op.normalise ? score[chosen[j]] / sum : score[chosen[j]];
        weight[j] = w * element<E>(op.scaling);
      }
    }
  });
}

template <class V>
void router_backward(const RouterBackward& op, ThreadPool& pool) {
  using E = typename V::Elem;
  const std::int64_t T = op.logits.rows, experts = op.logits.cols, k = op.expert.cols;
  pool.run((T + 15) / 16, [&](std::int64_t block) {
    E* score = thread_scratch<E>(static_cast<std::size_t>(experts));
    const E one = element<E>(1.0f), scaling = element<E>(op.scaling);
    for (std::int64_t t = block * 16; t < std::min(T, block * 16 + 16); ++t) {
      const E* logits = elements<V>(op.logits) + t * op.logits.stride;
      const E* dweight = elements<V>(op.dweight) + t * op.dweight.stride;
      const std::int32_t* chosen = ints(op.expert) + t * op.expert.stride;
      E* dlogits = elements<V>(op.dlogits) + t * op.dlogits.stride;
      for (std::int64_t e = 0; e < experts; e += 16) {
        const int lanes = lanes_left(experts, e);
        sigmoid(V::load_partial(logits + e, lanes)).store_partial(score + e, lanes);
        V::zero().store_partial(dlogits + e, lanes);
      }
      E sum = element<E>(0.0f), mean = element<E>(0.0f);
      for (std::int64_t j = 0; j < k; ++j) sum = sum + score[chosen[j]];
      sum = sum + element<E>(kRouterTiny);
      for (std::int64_t j = 0; j < k; ++j) mean = fused(dweight[j], score[chosen[j]] / sum, mean);
      for (std::int64_t j = 0; j < k; ++j) {
        const E s = score[chosen[j]];
        const E ds = op.normalise ? (scaling * (dweight[j] - mean)) / sum : scaling * dweight[j];
        dlogits[chosen[j]] = (ds * s) * (one - s);
      }
    }
  });
}

template <class V>
void router_load(const RouterLoad& op, ThreadPool&) {
  for (std::int64_t t = 0; t < op.expert.rows; ++t)
    for (std::int64_t j = 0; j < op.expert.cols; ++j) ++ints(op.load)[ints(op.expert)[t * op.expert.stride + j]];
}

LOCKSTEP_INSTANTIATE(router_forward, RouterForward)
LOCKSTEP_INSTANTIATE(router_backward, RouterBackward)
LOCKSTEP_INSTANTIATE(router_load, RouterLoad)

}  // namespace lockstep
