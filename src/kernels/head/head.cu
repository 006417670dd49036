// The CUDA form of head.h and head_shard.h. Products are linear's; sums along a row of logits use one block per row (block_log_sum.h); losses and
// gradients are row_loss.h's over single lanes.
#include "kernels/embedding/row_order.h"
#include "kernels/head/kept_sums_cuda.h"
#include "kernels/head/row_loss.h"
#include "kernels/head/teacher_row.h"
#include "kernels/linear/weight_gradient_cuda.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

namespace {
constexpr std::int32_t kLogSumFlag = 1 << 2;
constexpr int kColumnThreads = 256, kShardThreads = 128;
constexpr std::int64_t kKeptScratch = std::int64_t{64} << 20;  // bytes at most, unless a single row needs more
constexpr std::int64_t kGradientElements = 16 << 20;           // of logits that stand at once while a weight's gradient is made

// row_gradient of row_gradient.h by all threads of a block: n logits, already divided by the temperature, from token `first` on. Threads do not wait
// for each other: each logit belongs to one thread.
LOCKSTEP_DEVICE void block_row_gradient(const Thread& t, const RowGradient& op, std::int64_t at, float* z, std::int64_t n, std::int64_t first) {
  const RowSlopes<Lane> row = row_slopes<Lane>(op, at);
  if (!row.has_gradient) {
    for (std::int64_t i = t.index(); i < n; i += t.count()) z[i] = 0.0f;
    return;
  }
  const std::int32_t* target = ints(op.target) + at * op.target.stride;
  const float* slope = floats(op.slope) + at * op.slope.stride;
  const auto own = [&](std::int64_t k) { return target[k] >= first && target[k] < first + n; };
  std::int64_t only = -1;
  float only_slope = 0.0f;
  for (std::int64_t k = 0; row.scored == 1 && k < op.target.cols; ++k)
    if (own(k)) only = target[k] - first, only_slope = slope[k];
  const KeptRow kept = kept_row<Lane>(op.distribution, at);
  for (std::int64_t i = t.index(); i < n; i += t.count()) {
    if (kept && !keeps<Lane>(kept, first + i)) z[i] = 0.0f;
    else z[i] = i == only ? target_gradient<Lane>(row, only_slope, z[i]) : logit_gradient(row, Lane{z[i]}).x;
  }
  for (std::int64_t k = 0; row.scored > 1 && k < op.target.cols; ++k)
    if (own(k) && (target[k] - first) % t.count() == t.index()) z[target[k] - first] = z[target[k] - first] + slope[k];
  const float temperature = row_temperature<Lane>(op.distribution, at);
  if (temperature == 1.0f) return;
  for (std::int64_t i = t.index(); i < n; i += t.count()) z[i] = z[i] / temperature;
}

// One sum of a leaf of n logits z and y by a group, in its lane 0 (divergence_leaf of teacher_rows.h).
LOCKSTEP_DEVICE float group_divergence_leaf(const Thread& t, Divergence kind, bool second, const float* z, const float* y, std::int64_t n, float student,
                                            float teacher) {
  const auto a = [=](std::int64_t i) { return Lane{z[i] - student}; };
  const auto b = [=](std::int64_t i) { return Lane{y[i] - teacher}; };
  return group_dot16(
      t, n, [&](std::int64_t i) { return divergence_probability<Lane>(kind, second, a(i), b(i)).x; },
      [&](std::int64_t i) { return divergence_term<Lane>(kind, second, a(i), b(i)).x; });
}

// One sum of a row's divergence from its teacher (teacher_row.h) by all threads of a block: a leaf a group.
LOCKSTEP_DEVICE float block_divergence_sum(const Thread& t, Divergence kind, bool second, const float* z, const float* y, std::int64_t n, int maximum_leaves,
                                           float student, float teacher, LeafMemory& memory) {
  const int leaves = leaf_count(n, maximum_leaves);
  const std::int64_t size = n / leaves;
  if (t.group() < leaves) {
    const std::int64_t begin = t.group() * size;
    const float part = group_divergence_leaf(t, kind, second, z + begin, y + begin, size, student, teacher);
    if (t.lane() == 0) memory.sum[t.group()] = part;
  }
  t.sync();
  if (t.index() == 0) memory.row.log_sum = join_pairwise(memory.sum, leaves);
  t.sync();
  const float sum = memory.row.log_sum;
  t.sync();
  return sum;
}

// taught_gradient of teacher_rows.h by all threads of a block, which do not wait for each other.
LOCKSTEP_DEVICE void block_taught_gradient(const Thread& t, const TaughtGradient& op, std::int64_t at, float* z, const float* y, std::int64_t n) {
  const auto number = [at](const View& v) { return floats(v)[at * v.stride]; };
  const float weight = number(op.slope);
  if (weight == 0.0f) {
    for (std::int64_t i = t.index(); i < n; i += t.count()) z[i] = 0.0f;
    return;
  }
  const float centre = number(op.teacher.centre), student = number(op.log_sum), teacher = number(op.teacher.log_sum);
  for (std::int64_t i = t.index(); i < n; i += t.count())
    z[i] = divergence_gradient<Lane>(op.teacher.divergence, Lane{weight}, Lane{centre}, Lane{z[i] - student}, Lane{y[i] - teacher}).x;
}

// A row of the chunk that begins at row `begin`.
struct HeadRowBody {
  static constexpr bool kCooperates = true;
  HeadLoss op;
  std::int64_t begin;
  const float* kept_sums;  // of the chunk (KeptSumsBody), where rows keep tokens
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const std::int64_t row = begin + t.block(), vocabulary = op.w.outputs;
    float* z = floats(op.logits_chunk) + t.block() * op.logits_chunk.stride;
    const auto logit = [z](std::int64_t i) { return z[i]; };
    LeafMemory& memory = *t.shared<LeafMemory>();
    const bool scored = any_target<Lane>(op.target, row);
    float log = 0.0f, entropy = 0.0f;
    if (scored && kept_row<Lane>(op.distribution, row)) {
      log = kept_sums[t.block() * 2];
      if (op.entropy) entropy = log - kept_sums[t.block() * 2 + 1];
    } else if (scored) {
      log = block_log_sum(t, vocabulary, op.w.maximum_leaves, logit, memory).log_sum;
      if (op.entropy) entropy = log - block_entropy_sum(t, vocabulary, op.w.maximum_leaves, logit, log, memory);
    }
    const float* y = op.teacher ? floats(op.teacher.logits_chunk) + t.block() * op.teacher.logits_chunk.stride : nullptr;
    float teacher = 0.0f, first = 0.0f, second = 0.0f;
    if (y && scored) {
      const Divergence kind = op.teacher.divergence;
      teacher = block_log_sum(
                    t, vocabulary, op.w.maximum_leaves, [y](std::int64_t i) { return y[i]; }, memory)
                    .log_sum;
      first = block_divergence_sum(t, kind, false, z, y, vocabulary, op.w.maximum_leaves, log, teacher, memory);
      if (kind == Divergence::jensen_shannon) second = block_divergence_sum(t, kind, true, z, y, vocabulary, op.w.maximum_leaves, log, teacher, memory);
    }
    if (t.index() == 0) {
      const auto put = [row](const View& v, float x) {
        if (v) floats(v)[row * v.stride] = x;
      };
      if (scored && !is_finite<Lane>(log) && op.flags) ints(op.flags)[row * op.flags.stride] |= kLogSumFlag;
      const std::int32_t* target = ints(op.target) + row * op.target.stride;
      row_losses<Lane>(op, row, log, [z, target](std::int64_t k) { return z[target[k]]; });
      take_entropy_bonus<Lane>(op.loss, op.entropy_slope, entropy, row);
      put(op.entropy, entropy);
      put(op.log_sum, log);
      if (y) put_divergence<Lane>(op, row, scored, teacher, first, second);
    }
    if (!op.dx) return;
    t.sync();
    if (y) return block_taught_gradient(t, TaughtGradient{op.slope, op.log_sum, op.teacher}, row, z, y, vocabulary);
    block_row_gradient(t, RowGradient{op.target, op.slope, op.log_sum, op.entropy, op.entropy_slope, op.distribution}, row, z, vocabulary, 0);
  }
};

// Logits of all rows for some tokens, turned into their gradient.
struct HeadColumnsBody {
  static constexpr bool kCooperates = false;
  RowGradient op;
  float* z;
  std::int64_t columns, first;
  LOCKSTEP_DEVICE void operator()(const Thread& t) const { block_row_gradient(t, op, t.block(), z + t.block() * columns, columns, first); }
};

// The same of rows with a teacher, whose logits are y.
struct TaughtColumnsBody {
  static constexpr bool kCooperates = false;
  TaughtGradient op;
  float* z;
  const float* y;
  std::int64_t columns;
  LOCKSTEP_DEVICE void operator()(const Thread& t) const { block_taught_gradient(t, op, t.block(), z + t.block() * columns, y + t.block() * columns, columns); }
};

// What a tied table deposits beside its product's gradient: the embedding's (embedding.h), of the rows whose token an output is.
struct TableDeposits {
  HeadWeight op;
  std::int64_t first;         // token of output 0
  const std::int32_t* order;  // null: the table is not tied

  // The first place in `order` of the output's token; -1 where no row has it.
  LOCKSTEP_DEVICE std::int64_t output(std::int64_t n) const {
    const std::int64_t rows = order ? op.table_dy.rows : 0, id = first + n;
    const std::int32_t* token = ints(op.token);
    std::int64_t at = 0;
    for (std::int64_t end = rows; at < end;) {
      const std::int64_t middle = at + (end - at) / 2;
      if (token[order[middle]] < id) at = middle + 1;
      else end = middle;
    }
    return at < rows && token[order[at]] == id ? at : -1;
  }
  LOCKSTEP_DEVICE void deposit(std::int64_t at, std::int64_t k, AccumulatorVec<Lane>& bins) const {
    if (at < 0) return;
    BinGroup<Lane> group;
    bins.normalise();
    group.bins = bins;
    deposit_rows_of_id(group, op.table_dy, ints(op.token), ints(op.segment), order, at, k);
    group.bins.normalise();
    bins = group.bins;
  }
};

// The kept logits of a rank's own leaves, to their places.
struct KeptPlacesBody {
  HeadShardSums op;
  LOCKSTEP_DEVICE void operator()(std::int64_t row) const {
    const KeptRow kept = kept_row<Lane>(op.distribution, row);
    if (!kept || !any_target<Lane>(op.target, row)) return;
    const std::int64_t size = op.z.cols / op.leaves, width = op.kept.cols / op.leaves;
    const float* z = floats(op.z) + row * op.z.stride;
    for (std::int64_t leaf = 0; leaf < op.leaves; ++leaf) {
      float* out = floats(op.kept) + row * op.kept.stride + leaf * width;
      const std::int64_t begin = op.first + leaf * size, end = begin + size;
      if (kept.bitmap) {
        for (std::int64_t id = begin; id < end; ++id)
          if (keeps<Lane>(kept, id)) *out++ = z[id - op.first];
      } else {
        for (std::int64_t i = first_id<Lane>(kept.words, kept.count, begin); i < kept.count && kept.words[i] < end; ++i) *out++ = z[kept.words[i] - op.first];
      }
    }
  }
};

struct HeadShardSumsBody {
  static constexpr bool kCooperates = true;
  HeadShardSums op;
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const std::int64_t row = t.block(), size = op.z.cols / op.leaves, width = 2 + op.target.cols;
    const float* z = floats(op.z) + row * op.z.stride;
    for (std::int64_t leaf = t.group(); leaf < op.leaves; leaf += t.count() / kLanes) {
      float* sums = floats(op.sums) + row * op.sums.stride + leaf * width;
      float m, s;
      group_leaf_sum(
          t, leaf * size, size, [z](std::int64_t i) { return z[i]; }, m, s);
      if (t.lane() == 0) sums[0] = m, sums[1] = s;
      for (std::int64_t k = t.lane(); k < op.target.cols; k += kLanes) {
        const std::int64_t target = ints(op.target)[row * op.target.stride + k] - op.first;
        sums[2 + k] = target >= leaf * size && target < (leaf + 1) * size ? z[target] : 0.0f;
      }
    }
  }
};

struct HeadShardLossBody {
  HeadShardLoss op;
  const float* kept_sums;
  LOCKSTEP_DEVICE void operator()(std::int64_t row) const {
    const std::int64_t width = 2 + op.target.cols;
    const auto leaves = static_cast<int>(op.sums.cols / width);
    const float* sums = floats(op.sums) + row * op.sums.stride;
    float log = 0.0f;
    if (any_target<Lane>(op.target, row)) {
      float m[kMostLeaves], s[kMostLeaves];
      for (int leaf = 0; leaf < leaves; ++leaf) m[leaf] = sums[width * leaf], s[leaf] = sums[width * leaf + 1];
      log = kept_row<Lane>(op.distribution, row) ? kept_sums[row * 2] : join_leaf_sums<Lane>(m, s, leaves).log_sum;
      if (!is_finite<Lane>(log) && op.flags) ints(op.flags)[row * op.flags.stride] |= kLogSumFlag;
    }
    row_losses<Lane>(op, row, log, [&](std::int64_t k) {
      const std::int64_t leaf = ints(op.target)[row * op.target.stride + k] / (op.vocabulary / leaves);
      return sums[width * leaf + 2 + k];
    });
    floats(op.log_sum)[row * op.log_sum.stride] = log;
  }
};

struct HeadShardGradientBody {
  static constexpr bool kCooperates = true;
  HeadShardGradient op;
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const std::int64_t row = t.block(), n = op.z.cols;
    float* z = floats(op.z) + row * op.z.stride;
    if (op.entropy) {
      const std::int64_t leaves = op.entropy.cols, size = n / leaves;
      const bool scored = any_target<Lane>(op.target, row);
      const float log = floats(op.log_sum)[row * op.log_sum.stride];
      for (std::int64_t leaf = t.group(); leaf < leaves; leaf += t.count() / kLanes) {
        const float part = scored ? group_leaf_entropy(
                                        t, leaf * size, size, [z](std::int64_t i) { return z[i]; }, log)
                                  : 0.0f;
        if (t.lane() == 0) floats(op.entropy)[row * op.entropy.stride + leaf] = part;
      }
      t.sync();
    }
    if (op.gradient)
      block_row_gradient(t, RowGradient{op.target, op.slope, op.log_sum, op.row_entropy, op.entropy_slope, op.distribution}, row, z, n, op.first);
  }
};

struct HeadShardEntropyBody {
  HeadShardEntropy op;
  const float* kept_sums;
  LOCKSTEP_DEVICE void operator()(std::int64_t row) const {
    float* sums = floats(op.sums) + row * op.sums.stride;
    const float log = floats(op.log_sum)[row * op.log_sum.stride];
    float entropy = 0.0f;
    if (any_target<Lane>(op.target, row))
      entropy = log - (kept_row<Lane>(op.distribution, row) ? kept_sums[row * 2 + 1] : join_pairwise(sums, static_cast<int>(op.sums.cols)));
    floats(op.entropy)[row * op.entropy.stride] = entropy;
    take_entropy_bonus<Lane>(op.loss, op.entropy_slope, entropy, row);
  }
};

struct HeadShardTaughtBody {
  static constexpr bool kCooperates = true;
  HeadShardTaught op;
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const std::int64_t row = t.block(), n = op.z.cols;
    float* z = floats(op.z) + row * op.z.stride;
    const float* y = floats(op.y) + row * op.y.stride;
    if (!op.sums) return block_taught_gradient(t, TaughtGradient{op.slope, op.log_sum, op.teacher}, row, z, y, n);
    const Divergence kind = op.teacher.divergence;
    const std::int64_t sums_a_leaf = divergence_sums(kind), size = n / (op.sums.cols / sums_a_leaf);
    const bool scored = any_target<Lane>(op.target, row);
    const float student = floats(op.log_sum)[row * op.log_sum.stride], teacher = floats(op.teacher.log_sum)[row * op.teacher.log_sum.stride];
    for (std::int64_t i = t.group(); i < op.sums.cols; i += t.count() / kLanes) {
      const std::int64_t begin = i / sums_a_leaf * size;
      const float sum = scored ? group_divergence_leaf(t, kind, i % sums_a_leaf == 1, z + begin, y + begin, size, student, teacher) : 0.0f;
      if (t.lane() == 0) floats(op.sums)[row * op.sums.stride + i] = sum;
    }
  }
};

struct HeadShardDivergenceBody {
  HeadShardDivergence op;
  LOCKSTEP_DEVICE void operator()(std::int64_t row) const {
    const std::int64_t sums_a_leaf = divergence_sums(op.teacher.divergence);
    const auto leaves = static_cast<int>(op.sums.cols / sums_a_leaf);
    const bool scored = any_target<Lane>(op.target, row);
    const float* sums = floats(op.sums) + row * op.sums.stride;
    float log = 0.0f, joined[2] = {0.0f, 0.0f};
    if (scored) log = floats(op.teacher.log_sum)[row * op.teacher.log_sum.stride];
    for (std::int64_t i = 0; scored && i < sums_a_leaf; ++i) {
      float part[kMostLeaves];
      for (int leaf = 0; leaf < leaves; ++leaf) part[leaf] = sums[leaf * sums_a_leaf + i];
      joined[i] = join_pairwise(part, leaves);
    }
    put_divergence<Lane>(op, row, scored, log, joined[0], joined[1]);
  }
};

// A matrix of fp32 in scratch; slots 0 to 2 are those of the products.
View scratch_rows(int slot, std::int64_t rows, std::int64_t columns, Grid& grid) {
  View v;
  v.address = reinterpret_cast<std::uint64_t>(grid.scratch<float>(slot, rows * columns));
  v.rows = rows;
  v.cols = v.stride = columns;
  return v;
}

void temper(const RowDistribution& distribution, const View& z, Grid& grid) {
  if (distribution.temperature) grid.run(z.rows, kColumnThreads, TemperRowsBody{distribution, z});
}

// The sums of rows that keep tokens; null where none does.
const float* kept_sums(const RowDistribution& distribution, const View& target, const KeptLogits& logits, int maximum_leaves, Grid& grid) {
  if (!distribution.kept) return nullptr;
  const std::int64_t a_row = KeptSumsBody::kArrays * distribution.most_kept, room = kKeptScratch / (a_row * 4 + 1), most = room < 1 ? 1 : room;
  const std::int64_t blocks = target.rows < most ? target.rows : most;
  float* sums = grid.scratch<float>(5, target.rows * 2);
  grid.run(blocks, kBlockThreads, KeptSumsBody{distribution, target, logits, maximum_leaves, sums, grid.scratch<std::int32_t>(6, blocks * a_row + 1)},
           KeptSumsBody::kSharedBytes);
  return sums;
}
const float* kept_sums_of_leaves(const RowDistribution& distribution, const View& target, const View& kept, std::int64_t leaves, int maximum_leaves,
                                 Grid& grid) {
  return kept_sums(distribution, target, {kept, distribution.vocabulary / leaves, kept.cols / leaves}, maximum_leaves, grid);
}

// Columns [first, first + columns) of a head in panels; first is a multiple of 16.
PackedWeight columns_of(const PackedWeight& w, std::int64_t first, std::int64_t columns) {
  PackedWeight part = w;
  part.outputs = columns;
  part.data.address += static_cast<std::uint64_t>(first * w.inputs * w.data.element_bytes);
  return part;
}

void launch_logits(const View& y, const View& x, const PackedWeight& w, bool round_input_bf16, Grid& grid) {
  LinearForward op{y, x, w};
  op.round_input_bf16 = round_input_bf16;
  launch(op, grid);
}
}  // namespace

void launch(const HeadLoss& op, Grid& grid) {
  for (std::int64_t begin = 0; begin < op.x.rows; begin += op.logits_chunk.rows) {
    const std::int64_t left = op.x.rows - begin, count = left < op.logits_chunk.rows ? left : op.logits_chunk.rows;
    const View z = op.logits_chunk.row_range(0, count);
    launch_logits(z, op.x.row_range(begin, count), op.w, op.round_input_bf16, grid);
    const RowDistribution distribution = op.distribution.row_range(begin, count);
    temper(distribution, z, grid);
    const float* kept = kept_sums(distribution, op.target.row_range(begin, count), {z}, op.w.maximum_leaves, grid);
    if (op.teacher)
      launch_logits(op.teacher.logits_chunk.row_range(0, count), op.teacher.x.row_range(begin, count), op.teacher.w, op.teacher.round_input_bf16, grid);
    grid.run(count, leaf_count(op.w.outputs, op.w.maximum_leaves) * kLanes, HeadRowBody{op, begin, kept}, sizeof(LeafMemory));
    if (op.dx) launch(LinearBackwardInput{op.dx.row_range(begin, count), z, op.w}, grid);
  }
}

void launch(const HeadWeight& op, Grid& grid) {
  const std::int64_t rows = op.x.rows, inputs = op.w.inputs;
  const std::int32_t* order = op.table_dy ? order_rows(op.token, op.table_dy.rows, 3, grid) : nullptr;
  const std::int64_t most = kGradientElements / (rows > 0 ? rows : 1) / 16 * 16, step = most < 16 ? 16 : most;
  for (std::int64_t first = 0; first < op.w.outputs; first += step) {
    const std::int64_t left = op.w.outputs - first, columns = left < step ? left : step;
    const View z = scratch_rows(4, rows, columns, grid);
    const PackedWeight w = columns_of(op.w, first, columns);
    launch_logits(z, op.x, w, op.round_input_bf16, grid);
    if (op.teacher) {
      const View y = scratch_rows(5, rows, columns, grid);
      launch_logits(y, op.teacher.x, columns_of(op.teacher.w, first, columns), op.teacher.round_input_bf16, grid);
      grid.run(rows, kColumnThreads, TaughtColumnsBody{{op.slope, op.log_sum, op.teacher}, device_pointer<float>(z), device_pointer<float>(y), columns});
    } else {
      temper(op.distribution, z, grid);
      grid.run(rows, kColumnThreads,
               HeadColumnsBody{
                   {op.target, op.slope, op.log_sum, op.entropy, op.entropy_slope, op.distribution}, device_pointer<float>(z), columns, op.first + first});
    }
    LinearBackwardWeight gradient{op.gradient, op.bins, op.finish, z, op.x, w};
    gradient.segment = op.segment;
    const std::int64_t before = first * inputs;  // elements of the panels of earlier columns
    if (gradient.gradient) gradient.gradient.address += static_cast<std::uint64_t>(before) * sizeof(float);
    if (gradient.bins) gradient.bins.address += static_cast<std::uint64_t>(before / kLanes * AccumulatorVec<Lane>::kStorage) * sizeof(double);
    launch_weight_gradient(gradient, TableDeposits{op, op.first + first, order}, grid);
  }
}

void launch(const HeadLogits& op, Grid& grid) {
  const View chosen = scratch_rows(4, op.index.rows, op.x.cols, grid);
  launch(GatherRows{chosen, op.x, op.index}, grid);
  launch_logits(op.y, chosen, op.w, op.round_input_bf16, grid);
}

void launch(const HeadShardSums& op, Grid& grid) {
  temper(op.distribution, op.z, grid);
  if (op.distribution.kept) grid.each(op.z.rows, KeptPlacesBody{op});
  grid.run(op.z.rows, kShardThreads, HeadShardSumsBody{op});
}
void launch(const HeadShardLoss& op, Grid& grid) {
  const std::int64_t leaves = op.sums.cols / (2 + op.target.cols);
  grid.each(op.sums.rows, HeadShardLossBody{op, kept_sums_of_leaves(op.distribution, op.target, op.kept, leaves, op.maximum_leaves, grid)});
}
void launch(const HeadShardGradient& op, Grid& grid) {
  if (!op.tempered) temper(op.distribution, op.z, grid);
  grid.run(op.z.rows, kShardThreads, HeadShardGradientBody{op});
}
void launch(const HeadShardEntropy& op, Grid& grid) {
  grid.each(op.entropy.rows, HeadShardEntropyBody{op, kept_sums_of_leaves(op.distribution, op.target, op.kept, op.sums.cols, op.maximum_leaves, grid)});
}
void launch(const HeadShardTaught& op, Grid& grid) { grid.run(op.z.rows, kShardThreads, HeadShardTaughtBody{op}); }
void launch(const HeadShardDivergence& op, Grid& grid) { grid.each(op.sums.rows, HeadShardDivergenceBody{op}); }

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
