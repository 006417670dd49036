// The CUDA form of router.h: a group of 16 threads a row; of the loads a block an expert.
#include "kernels/cuda/block_tools.h"
#include "kernels/cuda/prelude.h"
#include "kernels/router/choice.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

namespace {
constexpr int kRouterRows = 4;  // a block

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
      score[e] = sigmoid_of(floats(op.logits)[row * op.logits.stride + e]);
      choice[e] = score[e] + floats(op.bias)[e];
    }
    t.sync();
    // The experts given for the row, or: an expert is chosen if fewer than k go before it, value descending, expert ascending.
    const std::int32_t* forced = there && op.forced ? ints(op.forced) + row * op.forced.stride : nullptr;
    if (forced && forced[0] < 0) forced = nullptr;
    for (std::int64_t e = t.lane(); there && e < experts; e += kLanes) {
      if (forced) {
        taken[e] = 0.0f;
        for (std::int64_t j = 0; j < k; ++j) taken[e] = forced[j] == e ? 1.0f : taken[e];
        continue;
      }
      std::int64_t before = 0;
      for (std::int64_t other = 0; other < experts; ++other)
        before += other < e ? !router_before<Lane>(choice[e], choice[other]) : router_before<Lane>(choice[other], choice[e]);
      taken[e] = before < k ? 1.0f : 0.0f;
    }
    t.sync();
    if (there && t.lane() == 0) write(row, score, choice, taken);
  }

 private:
  LOCKSTEP_DEVICE void write(std::int64_t row, const float* score, const float* choice, const float* taken) const {
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
      sum = sum + score[e];
    }
    sum = sum + kRouterTiny;
    for (std::int64_t j = 0; j < count; ++j) {
      const float s = score[chosen[j]];
      weight[j] = (op.normalise ? s / sum : s) * op.scaling;
    }
    if (nan && op.flags) ints(op.flags)[row * op.flags.stride] |= kRouterNanFlag;
  }
};

// Every lane makes the row's sums for itself: k is small.
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
void launch(const RouterBackward& op, Grid& grid) { grid.run((op.logits.rows + kRouterRows - 1) / kRouterRows, kRouterRows * kLanes, RouterBackwardBody{op}); }
void launch(const RouterLoad& op, Grid& grid) { grid.run(op.load.cols, kBlockThreads, RouterLoadBody{op}, kBlockThreads * sizeof(std::int32_t)); }

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
