// Implementation of router.h.
#include "kernels/router/choice.h"

namespace lockstep {

// -infinity for the choices of all but the op.kept_groups groups that count most; a NaN stays, to be flagged. `count`: op.groups elements.
template <class V>
void leave_groups_out(const RouterForward& op, typename V::Elem* choice, typename V::Elem* count) {
  using E = typename V::Elem;
  const std::int64_t size = op.logits.cols / op.groups;
  for (std::int64_t g = 0; g < op.groups; ++g) {
    const E* of = choice + g * size;
    std::int64_t largest = 0, second = 1;
    if (router_before<V>(of[1], of[0])) largest = 1, second = 0;
    for (std::int64_t e = 2; e < size; ++e) {
      if (router_before<V>(of[e], of[largest])) second = largest, largest = e;
      else if (router_before<V>(of[e], of[second])) second = e;
    }
    count[g] = of[largest] + of[second];
  }
  const E out = element<E>(-INFINITY);
  for (std::int64_t g = 0; g < op.groups; ++g) {
    std::int64_t before = 0;
    for (std::int64_t other = 0; other < op.groups; ++other)
      before += other < g ? !router_before<V>(count[g], count[other]) : router_before<V>(count[other], count[g]);
    if (before < op.kept_groups) continue;
    for (std::int64_t e = g * size; e < (g + 1) * size; ++e)
      if (!router_is_nan<V>(choice[e])) choice[e] = out;
  }
}

// Softmax: exp(logit - the largest logit) of the experts of the sum, to `score`; returns the sum. The experts are `chosen`, or all (null).
template <class V>
typename V::Elem softmax_scores(const typename V::Elem* logits, const std::int32_t* chosen, std::int64_t count, typename V::Elem* score) {
  using E = typename V::Elem;
  const auto expert = [&](std::int64_t j) { return chosen ? std::int64_t{chosen[j]} : j; };
  E largest = logits[expert(0)];
  for (std::int64_t j = 1; j < count; ++j) largest = logits[expert(j)] > largest ? logits[expert(j)] : largest;
  E sum = element<E>(0.0f);
  for (std::int64_t j = 0; j < count; ++j) score[expert(j)] = logits[expert(j)] - largest;
  for (std::int64_t j = 0; j < count; ++j) {
    E& s = score[expert(j)];
    s = exp_element<V>(s);
    sum = sum + s;
  }
  return sum;
}

template <class V>
void router_forward(const RouterForward& op, ThreadPool& pool) {
  using E = typename V::Elem;
  const std::int64_t T = op.logits.rows, experts = op.logits.cols, k = op.expert.cols;
  const E* bias = op.bias ? elements<V>(op.bias) : nullptr;
  pool.run((T + 15) / 16, [&](std::int64_t block) {
    E* score = thread_scratch<E>(static_cast<std::size_t>(2 * experts + op.groups));
    E* choice = score + experts;
    for (std::int64_t t = block * 16; t < std::min(T, block * 16 + 16); ++t) {
      const E* logits = elements<V>(op.logits) + t * op.logits.stride;
      std::int32_t* chosen = ints(op.expert) + t * op.expert.stride;
      E* weight = elements<V>(op.weight) + t * op.weight.stride;
      for (std::int64_t e = 0; e < experts; e += 16) {
        const int lanes = lanes_left(experts, e);
        const V z = V::load_partial(logits + e, lanes), s = op.softmax ? z : sigmoid(z);
        s.store_partial(score + e, lanes);
        (bias ? s + V::load_partial(bias + e, lanes) : s).store_partial(choice + e, lanes);
      }
      if (op.groups > 1) leave_groups_out<V>(op, choice, choice + experts);
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
      if (op.softmax) {
        sum = softmax_scores<V>(logits, op.normalise ? chosen : nullptr, op.normalise ? k : experts, score);
      } else {
        for (std::int64_t j = 0; j < k; ++j) sum = sum + score[chosen[j]];
        sum = sum + element<E>(kRouterTiny);
      }
      for (std::int64_t j = 0; j < k; ++j) {
        const E w = op.normalise || op.softmax ? score[chosen[j]] / sum : score[chosen[j]];
        weight[j] = w * element<E>(op.scaling);
      }
    }
  });
}

// One row's gradient of a softmax's logits; `dlogits` is +0.
template <class V>
void softmax_backward(const RouterBackward& op, const typename V::Elem* logits, const typename V::Elem* dweight, const std::int32_t* chosen,
                      typename V::Elem* score, typename V::Elem* dlogits) {
  using E = typename V::Elem;
  const std::int64_t experts = op.logits.cols, k = op.expert.cols;
  const E zero = element<E>(0.0f), scaling = element<E>(op.scaling);
  const E sum = softmax_scores<V>(logits, op.normalise ? chosen : nullptr, op.normalise ? k : experts, score);
  E mean = zero;
  for (std::int64_t j = 0; j < k; ++j) mean = fused(dweight[j], score[chosen[j]] / sum, mean);
  const auto gradient = [&](std::int64_t e, const E& dw) { dlogits[e] = (scaling * (score[e] / sum)) * (dw - mean); };
  for (std::int64_t e = 0; e < experts && !op.normalise; ++e) gradient(e, zero);
  for (std::int64_t j = 0; j < k; ++j) gradient(chosen[j], dweight[j]);
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
        if (!op.softmax) sigmoid(V::load_partial(logits + e, lanes)).store_partial(score + e, lanes);
        V::zero().store_partial(dlogits + e, lanes);
      }
      if (op.softmax) {
        softmax_backward<V>(op, logits, dweight, chosen, score, dlogits);
        continue;
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
