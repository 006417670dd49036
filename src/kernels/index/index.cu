// The CUDA form of index.h: scoring and selection here, the loss in loss_bodies.h.
#include "kernels/index/loss_bodies.h"
#include "kernels/index/order.h"
#include "kernels/index/scores.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

namespace {
constexpr int kSelectThreads = 128, kDigitBits = 4, kDigits = 1 << kDigitBits;
constexpr std::int64_t kScoresOfLaunch = std::int64_t{1} << 24;  // rows of long sequences are scored fewer at a time

struct SelectShared {
  std::int32_t count[kDigits][kSelectThreads];
  std::int32_t total[kDigits];
  std::int32_t begin[kSelectThreads], equal[kSelectThreads];  // of each thread's part: where it writes, how many equals stand before it
  bool nan[kSelectThreads];
};

// One row: the top_k-th greatest order number digit by digit, then all greater ones and the first of those equal to it, by position.
struct IndexSelectBody {
  static constexpr bool kCooperates = true;
  IndexSelect op;
  const float* scores;
  std::int64_t first_row, width;
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const std::int64_t row = first_row + t.block();
    const std::int64_t all = std::int64_t{1} + ints(op.rows.position)[row * op.rows.position.stride];
    const std::int64_t first = op.rows.first_key < all ? op.rows.first_key : all - 1, visible = all - first;  // keys from `first` on
    std::int32_t* selection = ints(op.selection) + row * op.selection.stride;
    if (t.index() == 0) ints(op.count)[row * op.count.stride] = static_cast<std::int32_t>(visible < op.top_k ? visible : op.top_k);
    if (visible <= op.top_k) {
      for (std::int64_t i = t.index(); i < op.top_k; i += t.count()) selection[i] = i < visible ? static_cast<std::int32_t>(first + i) : -1;
      return;
    }
    const float* score = scores + t.block() * width + first;
    auto& shared = *t.shared<SelectShared>();
    std::int64_t wanted = op.top_k;  // among those that agree with `least` above the digit
    const std::uint32_t least = least_chosen(t, shared, score, visible, wanted);

    const std::int64_t part = (visible + t.count() - 1) / t.count();
    const std::int64_t begin = t.index() * part < visible ? t.index() * part : visible, end = begin + part < visible ? begin + part : visible;
    std::int32_t greater = 0, equal = 0;
    bool nan = false;
    for (std::int64_t p = begin; p < end; ++p) {
      const std::uint32_t u = selection_order(score[p]);
      greater += u > least, equal += u == least, nan |= u == 0;
    }
    shared.begin[t.index()] = greater, shared.equal[t.index()] = equal, shared.nan[t.index()] = nan;
    t.sync();
    if (t.index() == 0) {
      std::int32_t all_greater = 0, all_equal = 0;
      bool any = false;
      for (int i = 0; i < t.count(); ++i) {
        const std::int32_t g = shared.begin[i], e = shared.equal[i];
        shared.begin[i] = all_greater + static_cast<std::int32_t>(all_equal < wanted ? all_equal : wanted);
        shared.equal[i] = all_equal;
        all_greater += g, all_equal += e, any |= shared.nan[i];
      }
      if (any && op.flags) ints(op.flags)[row * op.flags.stride] |= 1;
    }
    t.sync();
    std::int32_t to = shared.begin[t.index()];
    std::int64_t before = shared.equal[t.index()];
    for (std::int64_t p = begin; p < end; ++p) {
      const std::uint32_t u = selection_order(score[p]);
      if (u > least || (u == least && before++ < wanted)) selection[to++] = static_cast<std::int32_t>(first + p);
    }
  }

 private:
  // The top_k-th greatest; `wanted` becomes how many of those equal to it are chosen. All threads get both.
  LOCKSTEP_DEVICE static std::uint32_t least_chosen(const Thread& t, SelectShared& shared, const float* score, std::int64_t visible, std::int64_t& wanted) {
    std::uint32_t least = 0;
    for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
      for (int d = 0; d < kDigits; ++d) shared.count[d][t.index()] = 0;
      const std::uint32_t above = shift + kDigitBits < 32 ? ~std::uint32_t{0} << (shift + kDigitBits) : 0;
      for (std::int64_t p = t.index(); p < visible; p += t.count()) {
        const std::uint32_t u = selection_order(score[p]);
        if ((u & above) == least) ++shared.count[u >> shift & (kDigits - 1)][t.index()];
      }
      t.sync();
      if (t.index() < kDigits) {
        std::int32_t sum = 0;
        for (int i = 0; i < t.count(); ++i) sum += shared.count[t.index()][i];
        shared.total[t.index()] = sum;
      }
      t.sync();
      int digit = kDigits - 1;
      for (; shared.total[digit] < wanted; --digit) wanted -= shared.total[digit];
      least |= static_cast<std::uint32_t>(digit) << shift;
    }
    return least;
  }
};
}  // namespace

void launch(const IndexSelect& op, Grid& grid) {
  if (op.q.rows == 0) return;
  const std::int64_t width = op.rows.longest, key_blocks = (width + kKeyBlock - 1) / kKeyBlock;
  std::int64_t most = kScoresOfLaunch / width > 0 ? kScoresOfLaunch / width : 1;
  if (most > op.q.rows) most = op.q.rows;
  float* scores = grid.scratch<float>(0, most * width);
  for (std::int64_t row = 0; row < op.q.rows; row += most) {
    const std::int64_t rows = op.q.rows - row < most ? op.q.rows - row : most;
    grid.run(rows * key_blocks, kIndexThreads,
             IndexScoresBody{op.q, op.w, op.cache, View(), View(), op.rows, op.heads, op.size, row, op.top_k, key_blocks, width, scores});
    grid.run(rows, kSelectThreads, IndexSelectBody{op, scores, row, width}, sizeof(SelectShared));
  }
}

void launch(const IndexLoss& op, Grid& grid) {
  const std::int64_t width = op.target.cols, rows = op.q.rows, key_blocks = (width + kKeyBlock - 1) / kKeyBlock;
  float* scores = grid.scratch<float>(0, rows * width);  // as many numbers as the target has; they become dI
  grid.run(rows * key_blocks, kIndexThreads,
           IndexScoresBody{op.q, op.w, op.cache, op.selection, op.count, op.rows, op.heads, op.size, 0, 0, key_blocks, width, scores});
  grid.run(rows, static_cast<int>(kKeyBlock), IndexRowLossBody{op, scores, width}, sizeof(RowLossShared));
  const std::int64_t tiles = (op.heads + kIndexHeads - 1) / kIndexHeads;
  grid.run(rows * tiles, kIndexThreads, IndexQueryBody{op, scores, width, tiles}, sizeof(IndexQueryShared));
  const std::int64_t chunks = (op.size + kIndexThreads - 1) / kIndexThreads;
  grid.run(key_tiles(op.rows, op.dk.rows, kIndexKeys) * chunks, kIndexThreads, IndexKeyBody{op, scores, width, chunks}, sizeof(IndexKeyShared));
}

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
