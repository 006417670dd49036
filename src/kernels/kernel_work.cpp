#include "kernels/kernel_work.h"

#include <algorithm>
#include <initializer_list>

#include "kernels/elements.h"
#include "numerics/flop.h"
#include "numerics/form.h"

namespace lockstep {

namespace {
double number(std::int64_t n) { return static_cast<double>(n); }
double size_of(const View& v) { return number(v.size()); }
double bytes_of(const View& v) { return number(v.size() * v.element_bytes); }
double bytes_of(std::initializer_list<View> views) {
  double bytes = 0;
  for (const View& v : views) bytes += bytes_of(v);
  return bytes;
}
// A gradient that is written, and accumulators that are read and written.
double deposited(const View& gradient, const View& bins, bool finish) { return (finish || !bins ? bytes_of(gradient) : 0) + 2 * bytes_of(bins); }

// `rows`: of all items of a product, summed; `used`: how many items have rows.
struct ItemRows {
  double rows = 0, used = 0;
};
ItemRows item_rows(const View& offsets, const View& ends, std::int64_t count, std::int64_t all) {
  if (!offsets) return {number(count * all), all > 0 ? number(count) : 0};
  ItemRows items;
  for (std::int64_t g = 0; g < count; ++g) {
    const std::int64_t rows = (ends ? ints(ends)[g] : ints(offsets)[g + 1]) - ints(offsets)[g];
    if (rows <= 0) continue;
    items.rows += number(rows);
    items.used += 1;
  }
  return items;
}
double weights_of(const PackedWeight& w) { return number(w.outputs) * number(w.inputs); }
double stored_bytes(const PackedWeight& w, double used) { return w.count > 0 ? bytes_of(w.data) / number(w.count) * used : 0; }

// Bytes of the view's rows that a product reads: all, or with `offsets` those of its items.
double row_bytes(const View& v, const View& offsets, const ItemRows& items) { return offsets ? items.rows * number(v.cols * v.element_bytes) : bytes_of(v); }

// The keys that rows see, as attention and the indexer see them (attention/row_keys.h). of_rows: summed over rows; entries: the distinct cache
// entries.
struct SeenKeys {
  double of_rows = 0, entries = 0;
};
SeenKeys seen_keys(const Rows& rows, const View& selection, const View& count, std::int64_t window, std::int64_t all) {
  SeenKeys seen;
  std::int64_t sequence = -1, begin = 0, end = 0;
  double chosen = 0;  // of the sequence's rows
  const auto close = [&] { seen.entries += selection ? std::min(chosen, number(end - begin)) : number(end - begin); };
  for (std::int64_t t = 0; t < all; ++t) {
    const std::int64_t own = ints(rows.sequence)[t * rows.sequence.stride], visible = std::int64_t{1} + ints(rows.position)[t * rows.position.stride];
    const std::int64_t of_window = window > 0 ? std::max<std::int64_t>(0, visible - window) : 0;
    const std::int64_t first = std::max(of_window, std::min<std::int64_t>(rows.first_key, visible - 1));
    const double keys = selection ? number(ints(count)[t * count.stride]) : number(visible - first);
    if (own != sequence) {
      if (t > 0) close();
      sequence = own;
      begin = first;
      end = visible;
      chosen = 0;
    }
    begin = std::min(begin, first);
    end = std::max(end, visible);
    chosen += keys;
    seen.of_rows += keys;
  }
  if (all > 0) close();
  return seen;
}
double entry_bytes(const View& cache, const SeenKeys& seen) { return seen.entries * number(cache.cols * cache.element_bytes); }
}  // namespace

KernelWork work_of(const LinearForward& op) {
  const ItemRows items = item_rows(op.offsets, op.ends, op.w.count, op.x.rows);
  const double out = items.rows * number(op.w.outputs * op.y.element_bytes);
  return {product_flop(items.rows, weights_of(op.w)), row_bytes(op.x, op.offsets, items) + (op.accumulate ? 2 : 1) * out + stored_bytes(op.w, items.used)};
}
KernelWork work_of(const LinearBackwardInput& op) {
  const ItemRows items = item_rows(op.offsets, op.ends, op.w.count, op.dy.rows);
  return {product_flop(items.rows, weights_of(op.w)),
          row_bytes(op.dy, op.offsets, items) + (op.accumulate ? 2 : 1) * row_bytes(op.dx, op.offsets, items) + stored_bytes(op.w, items.used)};
}
KernelWork work_of(const LinearBackwardWeight& op) {
  const ItemRows items = item_rows(op.offsets, op.ends, op.w.count, op.dy.rows);
  return {product_flop(items.rows, weights_of(op.w)),
          row_bytes(op.dy, op.offsets, items) + row_bytes(op.x, op.offsets, items) + deposited(op.gradient, op.bins, op.finish)};
}

KernelWork work_of(const EmbeddingForward& op) {
  const double weights = number(std::max<std::int64_t>(1, op.vocabulary * op.y.cols));  // of a table of integers, which are not elements of the view
  const double stored = op.bits > 0 ? bytes_of(op.table) / weights : number(op.table.element_bytes);
  return {0, bytes_of({op.y, op.token}) + size_of(op.y) * stored};
}
KernelWork work_of(const EmbeddingBackward& op) {
  return {size_of(op.dy), bytes_of({op.dy, op.token, op.segment}) + deposited(op.gradient, op.bins, op.finish)};
}

KernelWork work_of(const RmsNormForward& op) { return {4 * size_of(op.x) + size_of(op.addend), bytes_of({op.y, op.x, op.w, op.addend, op.sum})}; }
KernelWork work_of(const RmsNormBackward& op) {
  return {11 * size_of(op.x) + size_of(op.onto), bytes_of({op.dx, op.dy, op.x, op.w, op.segment, op.onto}) + deposited(op.gradient, op.bins, op.finish)};
}
KernelWork work_of(const LayerNormForward& op) { return {7 * size_of(op.x), bytes_of({op.y, op.x, op.w, op.b})}; }
KernelWork work_of(const LayerNormBackward& op) {
  return {16 * size_of(op.x),
          bytes_of({op.dx, op.dy, op.x, op.w, op.segment}) + deposited(op.gradient_w, op.bins_w, op.finish) + deposited(op.gradient_b, op.bins_b, op.finish)};
}
KernelWork work_of(const BiasAdd& op) { return {size_of(op.y), 2 * bytes_of(op.y) + bytes_of({op.b, op.offsets})}; }
KernelWork work_of(const BiasBackward& op) {
  return {size_of(op.dy), bytes_of({op.dy, op.segment, op.offsets, op.row_of}) + deposited(op.gradient, op.bins, op.finish)};
}

KernelWork work_of(const Add& op) { return {size_of(op.y), bytes_of({op.y, op.a, op.b})}; }
KernelWork work_of(const Scale& op) { return {size_of(op.y), bytes_of({op.y, op.x})}; }
KernelWork work_of(const SwigluForward& op) { return {5 * size_of(op.y), bytes_of({op.y, op.gate, op.up})}; }
KernelWork work_of(const SwigluBackward& op) { return {11 * size_of(op.dy), bytes_of({op.dgate, op.dup, op.dy, op.gate, op.up})}; }
KernelWork work_of(const Rope& op) {
  const double rows = number(op.x.rows), heads = number(op.heads), turned = rows * heads * number(op.rotary), passed = rows * heads * number(op.pass);
  return {3 * turned, (turned + passed) * number(op.x.element_bytes + op.y.element_bytes) + rows * number(op.rotary * op.table.element_bytes)};
}
KernelWork work_of(const CacheWrite& op) { return {0, bytes_of(op.x) + size_of(op.x) * number(op.cache.element_bytes)}; }

KernelWork work_of(const IndexSelect& op) {
  double pairs = 0;  // rows that see no more keys than are chosen score none
  const Rows& rows = op.rows;
  for (std::int64_t t = 0; t < op.q.rows; ++t) {
    const std::int64_t visible = std::int64_t{1} + ints(rows.position)[t * rows.position.stride];
    const std::int64_t keys = visible - std::min<std::int64_t>(rows.first_key, visible - 1);
    if (keys > op.top_k) pairs += number(keys);
  }
  return {product_flop(pairs, number(op.heads * op.size)),
          bytes_of({op.selection, op.count, op.q, op.w}) + entry_bytes(op.cache, seen_keys(rows, {}, {}, 0, op.q.rows))};
}
KernelWork work_of(const IndexLoss& op) {
  const SeenKeys seen = seen_keys(op.rows, op.selection, op.count, 0, op.q.rows);
  return {3 * product_flop(seen.of_rows, number(op.heads * op.size)),  // scores, and the gradients of queries and keys
          bytes_of({op.dq, op.dw, op.dk, op.loss, op.q, op.w, op.selection, op.count}) + seen.of_rows * number(op.target.element_bytes) +
              entry_bytes(op.cache, seen)};
}

KernelWork work_of(const AttentionForward& op) {
  const AttentionShape& shape = op.shape;
  const SeenKeys seen = seen_keys(op.rows, op.selection, op.count, shape.window, op.q.rows);
  return {attention_flop(seen.of_rows * number(shape.heads), number(shape.key), number(shape.value)),
          bytes_of({op.o, op.log_sum, op.q, op.selection, op.sinks}) + entry_bytes(op.cache, seen)};
}
KernelWork work_of(const AttentionBackward& op) {
  const AttentionShape& shape = op.shape;
  const SeenKeys seen = seen_keys(op.rows, op.selection, op.count, shape.window, op.q.rows);
  return {attention_backward_flop(seen.of_rows * number(shape.heads), number(shape.key), number(shape.value)),
          bytes_of({op.dq, op.dentry, op.dout, op.o, op.log_sum, op.q, op.selection}) + entry_bytes(op.cache, seen)};
}
KernelWork work_of(const AttentionTarget& op) {
  const SeenKeys seen = seen_keys(op.rows, op.selection, op.count, op.shape.window, op.q.rows);
  return {product_flop(seen.of_rows * number(op.shape.heads), number(op.shape.key)),
          bytes_of({op.log_sum, op.q, op.selection}) + 2 * seen.of_rows * number(op.target.element_bytes) + entry_bytes(op.cache, seen)};
}
KernelWork work_of(const AttentionSinks& op) { return {2 * size_of(op.o), bytes_of({op.dsink, op.dout, op.o, op.log_sum, op.sinks})}; }

KernelWork work_of(const RouterForward& op) { return {4 * size_of(op.logits), bytes_of({op.expert, op.weight, op.logits, op.bias, op.forced})}; }
KernelWork work_of(const RouterBackward& op) { return {8 * size_of(op.dweight), bytes_of({op.dlogits, op.dweight, op.expert, op.logits})}; }
KernelWork work_of(const RouterLoad& op) { return {0, bytes_of(op.expert) + 2 * bytes_of(op.load)}; }
KernelWork work_of(const ExpertPlan& op) { return {0, bytes_of({op.offsets, op.row_of, op.slot_of, op.expert})}; }
KernelWork work_of(const SlotRanges& op) { return {0, bytes_of({op.begin, op.end, op.offsets, op.row_of})}; }
KernelWork work_of(const ExpertGather& op) { return {0, 2 * bytes_of(op.y) + bytes_of(op.row_of)}; }
KernelWork work_of(const ExpertCombine& op) {
  std::int64_t slots = 0;
  for (std::int64_t t = 0; t < op.expert.rows; ++t)
    for (std::int64_t j = 0; j < op.expert.cols; ++j) {
      const std::int64_t group = kExpertGroups * std::int64_t{ints(op.expert)[t * op.expert.stride + j]} / std::max<std::int64_t>(1, op.experts);
      slots += group >= op.group_begin && group < op.group_end;
    }
  const double added = number(slots * op.y.cols);
  return {(op.weight ? 2 : 1) * added, bytes_of({op.y, op.weight, op.expert, op.slot_of}) + added * number(op.x.element_bytes)};
}
KernelWork work_of(const ExpertSpread& op) {
  std::int64_t slots = op.slot_of.size();
  if (op.expert) {
    slots = 0;
    for (std::int64_t t = 0; t < op.expert.rows; ++t)
      for (std::int64_t j = 0; j < op.expert.cols; ++j) {
        const std::int64_t expert = ints(op.expert)[t * op.expert.stride + j];
        slots += expert >= op.expert_begin && expert < op.expert_end;
      }
  }
  const double spread = number(slots * op.dy.cols);
  return {3 * spread, bytes_of({op.dweight, op.dy, op.weight, op.slot_of, op.expert}) + 2 * spread * number(op.x.element_bytes)};
}

// Of every row, scored or not.
KernelWork work_of(const HeadLoss& op) {
  const double passes = op.dx ? 2 : 1;
  return {passes * product_flop(number(op.x.rows), weights_of(op.w)) + product_flop(number(op.teacher.x.rows), weights_of(op.teacher.w)),
          passes * bytes_of(op.w.data) + bytes_of({op.logprob, op.entropy, op.loss, op.marks, op.x, op.target, op.dx, op.log_sum, op.slope, op.entropy_slope,
                                                   op.teacher.x, op.teacher.w.data, op.teacher.log_sum, op.teacher.centre})};
}
// The logits again, then the sums over rows.
KernelWork work_of(const HeadWeight& op) {
  return {2 * product_flop(number(op.x.rows), weights_of(op.w)) + product_flop(number(op.teacher.x.rows), weights_of(op.teacher.w)),
          bytes_of({op.x, op.w.data, op.target, op.log_sum, op.slope, op.segment, op.entropy, op.entropy_slope, op.table_dy, op.token, op.teacher.x,
                    op.teacher.w.data, op.teacher.log_sum, op.teacher.centre}) +
              deposited(op.gradient, op.bins, op.finish)};
}
KernelWork work_of(const HeadLogits& op) {
  const double rows = number(op.index.rows);
  return {product_flop(rows, weights_of(op.w)), bytes_of({op.y, op.index, op.w.data}) + rows * number(op.w.inputs * op.x.element_bytes)};
}
KernelWork work_of(const HeadShardSums& op) { return {3 * size_of(op.z), bytes_of({op.sums, op.z, op.target, op.kept})}; }
KernelWork work_of(const HeadShardLoss& op) {
  return {3 * size_of(op.sums), bytes_of({op.log_sum, op.slope, op.logprob, op.loss, op.marks, op.entropy_slope, op.sums, op.target, op.kept})};
}
KernelWork work_of(const HeadShardGradient& op) {
  return {4 * size_of(op.z),
          (op.gradient ? 2 : 1) * bytes_of(op.z) + bytes_of({op.entropy, op.log_sum, op.slope, op.target, op.row_entropy, op.entropy_slope})};
}
KernelWork work_of(const HeadShardEntropy& op) {
  return {size_of(op.sums), bytes_of({op.entropy, op.log_sum, op.target, op.loss, op.entropy_slope, op.kept}) + 2 * bytes_of(op.sums)};
}
KernelWork work_of(const HeadShardTaught& op) {
  return {8 * size_of(op.z),
          (op.sums ? 1 : 2) * bytes_of(op.z) + bytes_of({op.y, op.sums, op.log_sum, op.slope, op.target, op.teacher.log_sum, op.teacher.centre})};
}
KernelWork work_of(const HeadShardDivergence& op) {
  return {size_of(op.sums), bytes_of({op.loss, op.slope, op.sums, op.target, op.objective.weight, op.teacher.log_sum, op.teacher.centre})};
}

KernelWork work_of(const AdjustLogits& op) {
  return {5 * size_of(op.token),
          2 * bytes_of(op.y) + bytes_of({op.row, op.begin, op.repetition, op.presence, op.frequency, op.token, op.count, op.seen, op.bias})};
}
KernelWork work_of(const Sample& op) {
  return {4 * size_of(op.logits),
          bytes_of({op.token, op.raw_logprob, op.sampling_logprob, op.logits, op.temperature, op.top_p, op.top_k, op.seed, op.min_p, op.sample, op.position})};
}
KernelWork work_of(const TopTokens& op) {
  const double read = number(op.row.rows) * number(op.logits.cols);
  return {3 * read, bytes_of({op.id, op.logprob, op.row, op.count, op.mask_row}) + read * number(op.logits.element_bytes)};
}

KernelWork work_of(const SquareSum& op) {
  KernelWork work{0, bytes_of({op.norm, op.parts, op.sum})};
  for (const View& gradient : op.gradients) {
    work.flop += 2 * size_of(gradient);
    work.bytes += bytes_of(gradient);
  }
  return work;
}
KernelWork work_of(const AdamW& op) {
  return {17 * size_of(op.master), bytes_of({op.master, op.m, op.v, op.m, op.v, op.master_out, op.compute_out, op.gradient, op.norm})};
}
KernelWork work_of(const FinishBins& op) { return {0, bytes_of(op.gradient) + 2 * bytes_of(op.bins)}; }
KernelWork work_of(const JoinBins& op) { return {size_of(op.into), 2 * bytes_of(op.into) + bytes_of(op.from)}; }
KernelWork work_of(const Pick& op) { return {0, 2 * bytes_of(op.y) + bytes_of(op.index)}; }
KernelWork work_of(const GatherRows& op) { return {0, 2 * bytes_of(op.y) + bytes_of(op.row_of)}; }
KernelWork work_of(const SlotSource& op) { return {0, bytes_of({op.source, op.slot_of, op.row_of}) + bytes_of(op.source)}; }
KernelWork work_of(const SumSharedRows& op) {
  const double summed = number(op.row.size()) * number(op.y.cols);
  return {summed, bytes_of({op.y, op.begin, op.row}) + summed * number(op.x.element_bytes)};
}
KernelWork work_of(const ValueLoss& op) {
  return {6 * size_of(op.value), bytes_of({op.value, op.loss, op.slope, op.marks, op.target, op.weight, op.returned, op.old})};
}
KernelWork work_of(const SetElements& op) { return {0, bytes_of({op.offset, op.bits}) + size_of(op.offset) * number(op.to.element_bytes)}; }

}  // namespace lockstep
