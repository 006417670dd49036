// The CUDA form of router.h: a group of 16 threads per row; for the loads one block per expert.
#include "kernels/cuda/block_tools.h"
#include "kernels/cuda/prelude.h"
#include "kernels/router/choice.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

namespace {
constexpr int kRouterRows = 4;  // a block

// Softmax: exp(logit - the largest logit) of the experts of the sum, to `score`; returns the sum. The experts are `chosen`, or all (null).
LOCKSTEP_DEVICE float softmax_scores(const float* logits, const std::int32_t* chosen, std::int64_t count, float* score) {
  const auto expert = [&](std::int64_t j) { return chosen ? std::int64_t{chosen[j]} : j; };
  float largest = logits[expert(0)], sum = 0.0f;
  for (std::int64_t j = 1; j < count; ++j) largest = logits[expert(j)] > largest ? logits[expert(j)] : largest;
  for (std::int64_t j = 0; j < count; ++j) {
    float& s = score[expert(j)];
    s = exp_of(logits[expert(j)] - largest);
    sum = sum + s;
  }
  return sum;
}

struct RouterForwardBody {
  static constexpr bool kCooperates = true;
  RouterForward op;
  // Shared, a row: scores, choices and whether chosen.
  static std::size_t shared_bytes(std::int64_t experts) { return static_cast<std::size_t>(kRouterRows * 3 * experts) * sizeof(float); }

  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const std::int64_t row = t.block() * kRouterRows + t.group(), experts = op.logits.cols, k = op.expert.cols;
    const bool there = row < op.logits.rows;
    float* score = t.shared<float>() + t.group() * 3 * experts;
    float* choice = score + experts;
    float* taken = choice + experts;
    for (std::int64_t e = t.lane(); there && e < experts; e += kLanes) {
      const float z = floats(op.logits)[row * op.logits.stride + e];
      score[e] = op.softmax ? z : sigmoid_of(z);
      choice[e] = op.bias ? score[e] + floats(op.bias)[e] : score[e];
    }
    t.sync();
    if (op.groups > 1) leave_groups_out(t, there, choice, taken);
    // The experts given for the row, or: an expert is chosen if fewer than k go before it, value descending, expert ascending.
    const std::int32_t* forced = there && op.forced ? ints(op.forced) + row * op.forced.stride : nullptr;
    if (forced && forced[0] < 0) forced = nullptr;
    for (std::int64_t e = t.lane(); there && e < experts; e += kLanes) {
      if (forced) {
        taken[e] = 0.0f;
        for (std::int64_t j = 0; j < k; ++j) taken[e] = forced[j] == e ? 1.0f : taken[e];
        continue;
      }
      taken[e] = before(choice, experts, e) < k ? 1.0f : 0.0f;
    }
    t.sync();
    if (there && t.lane() == 0) write(row, score, choice, taken);
  }

 private:
  // How many of n values go before value i: value descending, index ascending.
  LOCKSTEP_DEVICE static std::int64_t before(const float* values, std::int64_t n, std::int64_t i) {
    std::int64_t count = 0;
    for (std::int64_t other = 0; other < n; ++other)
      count += other < i ? !router_before<Lane>(values[i], values[other]) : router_before<Lane>(values[other], values[i]);
    return count;
  }

  // -infinity for the choices of all but the op.kept_groups groups that count most; a NaN stays, to be flagged. All threads of the block.
  LOCKSTEP_DEVICE void leave_groups_out(const Thread& t, bool there, float* choice, float* counts) const {
    const std::int64_t size = op.logits.cols / op.groups;
    for (std::int64_t g = t.lane(); there && g < op.groups; g += kLanes) {
      const float* of = choice + g * size;
      std::int64_t largest = 0, second = 1;
      if (router_before<Lane>(of[1], of[0])) largest = 1, second = 0;
      for (std::int64_t e = 2; e < size; ++e) {
        if (router_before<Lane>(of[e], of[largest])) second = largest, largest = e;
        else if (router_before<Lane>(of[e], of[second])) second = e;
      }
      counts[g] = of[largest] + of[second];
    }
    t.sync();
    for (std::int64_t g = t.lane(); there && g < op.groups; g += kLanes) {
      if (before(counts, op.groups, g) < op.kept_groups) continue;
      for (std::int64_t e = g * size; e < (g + 1) * size; ++e)
        if (!router_is_nan<Lane>(choice[e])) choice[e] = -INFINITY;
    }
    t.sync();
  }

  LOCKSTEP_DEVICE void write(std::int64_t row, float* score, const float* choice, const float* taken) const {
    const std::int64_t experts = op.logits.cols;
    std::int32_t* chosen = ints(op.expert) + row * op.expert.stride;
    float* weight = floats(op.weight) + row * op.weight.stride;
    std::int64_t count = 0;
    bool nan = false;
    float sum = 0.0f;
    for (std::int64_t e = 0; e < experts; ++e) {
      nan = nan || router_is_nan<Lane>(choice[e]);
      if (taken[e] == 0.0f) continue;
      chosen[count++] = static_cast<std::int32_t>(e);
      if (!op.softmax) sum = sum + score[e];
    }
    if (op.softmax) {
      const float* logits = floats(op.logits) + row * op.logits.stride;
      sum = softmax_scores(logits, op.normalise ? chosen : nullptr, op.normalise ? count : experts, score);
    } else {
      sum = sum + kRouterTiny;
    }
    for (std::int64_t j = 0; j < count; ++j) {
      const float s = score[chosen[j]];
      weight[j] = (op.normalise || op.softmax ? s / sum : s) * op.scaling;
    }
    if (nan && op.flags) ints(op.flags)[row * op.flags.stride] |= kRouterNanFlag;
  }
};

// Every lane makes the row's sums for itself: k is small. Not so for a softmax, whose sum may be over all experts.
struct RouterBackwardBody {
  static constexpr bool kCooperates = false;
  RouterBackward op;
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const std::int64_t row = t.block() * kRouterRows + t.group(), experts = op.logits.cols, k = op.expert.cols;
    if (row >= op.logits.rows) return;
    const float* logits = floats(op.logits) + row * op.logits.stride;
    const float* dweight = floats(op.dweight) + row * op.dweight.stride;
    const std::int32_t* chosen = ints(op.expert) + row * op.expert.stride;
    float* dlogits = floats(op.dlogits) + row * op.dlogits.stride;
    float sum = 0.0f, mean = 0.0f;
    for (std::int64_t j = 0; j < k; ++j) sum = sum + sigmoid_of(logits[chosen[j]]);
    sum = sum + kRouterTiny;
    for (std::int64_t j = 0; j < k; ++j) mean = fused(dweight[j], sigmoid_of(logits[chosen[j]]) / sum, mean);
    for (std::int64_t e = t.lane(); e < experts; e += kLanes) {
      float d = 0.0f;
      for (std::int64_t j = 0; j < k; ++j) {
        if (chosen[j] != e) continue;
        const float s = sigmoid_of(logits[e]);
        const float ds = op.normalise ? (op.scaling * (dweight[j] - mean)) / sum : op.scaling * dweight[j];
        d = (ds * s) * (1.0f - s);
      }
      dlogits[e] = d;
    }
  }
};

// One thread a row: exponentials go where the gradients will stand.
struct SoftmaxBackwardBody {
  RouterBackward op;
  LOCKSTEP_DEVICE void operator()(std::int64_t row) const {
    const std::int64_t experts = op.logits.cols, k = op.expert.cols;
    const float* logits = floats(op.logits) + row * op.logits.stride;
    const float* dweight = floats(op.dweight) + row * op.dweight.stride;
    const std::int32_t* chosen = ints(op.expert) + row * op.expert.stride;
    float* dlogits = floats(op.dlogits) + row * op.dlogits.stride;
    for (std::int64_t e = 0; e < experts; ++e) dlogits[e] = 0.0f;
    const float sum = softmax_scores(logits, op.normalise ? chosen : nullptr, op.normalise ? k : experts, dlogits);
    float mean = 0.0f;
    for (std::int64_t j = 0; j < k; ++j) mean = fused(dweight[j], dlogits[chosen[j]] / sum, mean);
    std::int64_t next = 0;  // of the chosen, ascending
    for (std::int64_t e = 0; e < experts; ++e) {
      const bool is_chosen = next < k && chosen[next] == e;
      if (is_chosen || !op.normalise) dlogits[e] = (op.scaling * (dlogits[e] / sum)) * ((is_chosen ? dweight[next] : 0.0f) - mean);
      next += is_chosen;
    }
  }
};

struct RouterLoadBody {
  static constexpr bool kCooperates = true;
  RouterLoad op;
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const std::int64_t pairs = op.expert.size(), k = op.expert.cols;
    std::int32_t own = 0;
    for (std::int64_t i = t.index(); i < pairs; i += t.count()) own += ints(op.expert)[i / k * op.expert.stride + i % k] == t.block();
    std::int32_t total = 0;
    sum_before(t, own, t.shared<std::int32_t>(), total);
    if (t.index() == 0) ints(op.load)[t.block()] += total;
  }
};
}  // namespace

void launch(const RouterForward& op, Grid& grid) {
  grid.run((op.logits.rows + kRouterRows - 1) / kRouterRows, kRouterRows * kLanes, RouterForwardBody{op}, RouterForwardBody::shared_bytes(op.logits.cols));
}
void launch(const RouterBackward& op, Grid& grid) {
  if (op.softmax) return grid.each(op.logits.rows, SoftmaxBackwardBody{op});
  grid.run((op.logits.rows + kRouterRows - 1) / kRouterRows, kRouterRows * kLanes, RouterBackwardBody{op});
}
void launch(const RouterLoad& op, Grid& grid) { grid.run(op.load.cols, kBlockThreads, RouterLoadBody{op}, kBlockThreads * sizeof(std::int32_t)); }

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
