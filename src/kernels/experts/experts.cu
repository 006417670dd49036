// The CUDA form of experts.h: for the plan one block per expert, for the spread a group of 16 threads per slot, else one thread per element.
#include "kernels/cuda/block_tools.h"
#include "kernels/cuda/prelude.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

namespace {
constexpr int kSpreadSlots = 8;  // a block

// Slots of one expert: the pairs that chose it, counted by a part of the block's threads each.
struct CountSlotsBody {
  static constexpr bool kCooperates = true;
  ExpertPlan op;
  bool fill;  // false: the count goes to offsets[e + 1]; true: offsets stand, and slots are written
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const std::int64_t k = op.expert.cols;
    const auto chose = [&](std::int64_t pair) { return ints(op.expert)[pair / k * op.expert.stride + pair % k] == t.block(); };
    const ThreadPart part(t, op.expert.size());
    std::int32_t own = 0, total = 0;
    for (std::int64_t pair = part.begin; pair < part.end; ++pair) own += chose(pair);
    const std::int32_t before = sum_before(t, own, t.shared<std::int32_t>(), total);
    if (!fill) {
      if (t.index() == 0) ints(op.offsets)[t.block() + 1] = total;
      return;
    }
    std::int32_t slot = ints(op.offsets)[t.block()] + before;
    for (std::int64_t pair = part.begin; pair < part.end; ++pair) {
      if (!chose(pair)) continue;
      ints(op.row_of)[slot] = static_cast<std::int32_t>(pair / k);
      ints(op.slot_of)[pair / k * op.slot_of.stride + pair % k] = slot++;
    }
  }
};

struct SumOffsetsBody {
  View offsets;
  LOCKSTEP_DEVICE void operator()(std::int64_t) const {
    ints(offsets)[0] = 0;
    for (std::int64_t e = 1; e < offsets.rows; ++e) ints(offsets)[e] += ints(offsets)[e - 1];
  }
};

struct SlotRangesBody {
  SlotRanges op;
  LOCKSTEP_DEVICE void operator()(std::int64_t e) const {
    const std::int32_t last = ints(op.offsets)[e + 1];
    const std::int32_t begin = first_slot(ints(op.offsets)[e], last, op.row_begin);
    ints(op.begin)[e] = begin;
    ints(op.end)[e] = first_slot(begin, last, op.row_end);
  }

 private:
  // The first slot of [begin, end) whose row is not below `row`; rows ascend.
  LOCKSTEP_DEVICE std::int32_t first_slot(std::int32_t begin, std::int32_t end, std::int64_t row) const {
    while (begin < end) {
      const std::int32_t middle = begin + (end - begin) / 2;
      if (ints(op.row_of)[middle] < row) begin = middle + 1;
      else end = middle;
    }
    return begin;
  }
};

struct ExpertGatherBody {
  ExpertGather op;
  LOCKSTEP_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t slot = item / op.y.cols, i = item % op.y.cols;
    floats(op.y)[slot * op.y.stride + i] = floats(op.x)[ints(op.row_of)[slot] * op.x.stride + i];
  }
};

struct ExpertCombineBody {
  ExpertCombine op;
  LOCKSTEP_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t t = item / op.y.cols, i = item % op.y.cols;
    float group[kExpertGroups] = {};
    for (std::int64_t j = 0; j < op.expert.cols; ++j) {
      const std::int64_t at = kExpertGroups * ints(op.expert)[t * op.expert.stride + j] / op.experts;
      if (at < op.group_begin || at >= op.group_end) continue;
      const std::int64_t row = op.slot_of ? ints(op.slot_of)[t * op.slot_of.stride + j] : t * op.expert.cols + j;
      const float x = floats(op.x)[row * op.x.stride + i];
      group[at] = op.weight ? fused(floats(op.weight)[t * op.weight.stride + j], x, group[at]) : group[at] + x;
    }
    floats(op.y)[t * op.y.stride + i] = join_pairwise(group + op.group_begin, op.group_end - op.group_begin);
  }
};

// dx may be x: a lane writes only what it alone has read.
struct ExpertSpreadBody {
  static constexpr bool kCooperates = true;
  ExpertSpread op;
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const std::int64_t pair = t.block() * kSpreadSlots + t.group(), k = op.slot_of.cols, row = pair / k, j = pair % k, h = op.dy.cols;
    if (row >= op.dy.rows) return;
    if (op.expert) {
      const std::int32_t e = ints(op.expert)[row * op.expert.stride + j];
      if (e < op.expert_begin || e >= op.expert_end) return;
    }
    const std::int64_t slot = ints(op.slot_of)[row * op.slot_of.stride + j];
    const float* dy = floats(op.dy) + row * op.dy.stride;
    const float* x = floats(op.x) + slot * op.x.stride;
    float* dx = floats(op.dx) + slot * op.dx.stride;
    const float sum = group_dot16(
        t, h, [dy](std::int64_t i) { return dy[i]; }, [x](std::int64_t i) { return x[i]; });
    if (t.lane() == 0) floats(op.dweight)[row * op.dweight.stride + j] = sum;
    const float weight = floats(op.weight)[row * op.weight.stride + j];
    for (std::int64_t i = t.lane(); i < h; i += kLanes) dx[i] = weight * dy[i];
  }
};
}  // namespace

void launch(const ExpertPlan& op, Grid& grid) {
  const std::int64_t experts = op.offsets.rows - 1;
  grid.run(experts, kBlockThreads, CountSlotsBody{op, false}, kBlockThreads * sizeof(std::int32_t));
  grid.each(1, SumOffsetsBody{op.offsets});
  grid.run(experts, kBlockThreads, CountSlotsBody{op, true}, kBlockThreads * sizeof(std::int32_t));
}
void launch(const SlotRanges& op, Grid& grid) { grid.each(op.begin.rows, SlotRangesBody{op}); }
void launch(const ExpertGather& op, Grid& grid) { grid.each(op.y.size(), ExpertGatherBody{op}); }
void launch(const ExpertCombine& op, Grid& grid) { grid.each(op.y.size(), ExpertCombineBody{op}); }
void launch(const ExpertSpread& op, Grid& grid) {
  grid.run((op.slot_of.size() + kSpreadSlots - 1) / kSpreadSlots, kSpreadSlots * kLanes, ExpertSpreadBody{op});
}

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
