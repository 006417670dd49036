#include "kernels/attention/attention.h"

#include <cmath>

#include "kernels/cache/paged_rows_test_tools.h"
#include "kernels/launch.h"
#include "numerics/elementary.h"
#include "numerics/form.h"
#include "numerics/isa/scalar.h"

namespace lockstep {
namespace {

struct AttentionCase {
  int heads, value, rest, top_k;  // a latent entry: the key is value + rest wide; top_k 0: dense
  std::vector<PagedRows::Sequence> sequences;
  DType cache = DType::f32;
  int kv_heads = 0;  // not 0: grouped queries, values apart, the key `rest` wide
  int window = 0;    // keys that a row sees; 0: all
  bool sinks = false;
  int first_key = 0;  // Rows::first_key (dense)
  bool grouped() const { return kv_heads > 0; }
};
AttentionCase grouped(int heads, int kv_heads, int key, int value, int top_k, std::vector<PagedRows::Sequence> sequences, DType cache = DType::f32) {
  return {heads, value, key, top_k, std::move(sequences), cache, kv_heads};
}
AttentionCase windowed(int window, AttentionCase c) {
  c.window = window;
  return c;
}

AttentionCase from_key(int first, AttentionCase c) {
  c.first_key = first;
  return c;
}

AttentionCase with_sinks(AttentionCase c) {
  c.sinks = true;
  return c;
}

// One case with its values, the references in double, and the written order in plain floats.
struct AttentionProblem {
  AttentionCase c;
  PagedRows rows;
  AttentionShape shape;
  int group, key, value, width, T;  // heads a group; width: of an entry
  float scale;
  std::vector<float> q, cache, dout;
  std::vector<std::int32_t> selection, count;
  std::vector<float> sinks;  // a head; or none
  std::vector<double> wide_sinks;

  explicit AttentionProblem(const AttentionCase& k)
      : c(k),
        rows(k.sequences, 4),
        shape{k.heads, k.grouped() ? k.kv_heads : 1, k.grouped() ? k.rest : k.value + k.rest, k.value, !k.grouped()},
        group(static_cast<int>(shape.group())),
        key(static_cast<int>(shape.key)),
        value(k.value),
        width(static_cast<int>(shape.entry())),
        T(rows.rows()),
        scale(1.7f / std::sqrt(static_cast<float>(key))),
        q(random_floats(std::int64_t{T} * k.heads * key, 1)),
        cache(as_stored(random_floats(std::int64_t{rows.slots()} * width, 2), k.cache)),
        dout(random_floats(std::int64_t{T} * k.heads * value, 3)) {
    shape.scale = scale;
    shape.window = k.window;
    if (k.top_k > 0) selection = rows.random_selection(k.top_k, count);
    if (k.sinks) sinks = as_stored(random_floats(k.heads, 4, -2, 4), k.cache);  // some the largest of their softmax
    wide_sinks = widened(sinks);
  }
  std::vector<int> keys(int t) const {
    std::vector<int> p;
    if (c.top_k == 0)
      for (int i = std::max(c.window > 0 ? rows.visible(t) - c.window : 0, std::min(c.first_key, rows.visible(t) - 1)); i < rows.visible(t); ++i)
        p.push_back(i);
    else
      for (int i = 0; i < count[t]; ++i) p.push_back(selection[t * c.top_k + i]);
    return p;
  }
  // Where the key and the value of head h begin in an entry.
  int key_column(int h) const { return c.grouped() ? h / group * key : 0; }
  int value_column(int h) const { return c.grouped() ? c.kv_heads * key + h / group * value : 0; }
  template <class E>
  const E* entry(const std::vector<E>& from, int t, int p) const {
    return from.data() + std::size_t(rows.slot(rows.sequence[t], p)) * width;
  }

  // Probabilities and log-sum of (row, head), in double.
  std::vector<double> probabilities(const std::vector<double>& qs, const std::vector<double>& entries, int t, int h, double* log_sum = nullptr) const {
    const std::vector<int> ks = keys(t);
    std::vector<double> s;
    double largest = -1e300, sum = 0;
    for (int p : ks) {
      double dot = 0;
      for (int i = 0; i < key; ++i) dot += qs[(std::size_t(t) * c.heads + h) * key + i] * entry(entries, t, p)[key_column(h) + i];
      s.push_back(dot * scale);
      largest = std::max(largest, s.back());
    }
    if (c.sinks) largest = std::max(largest, wide_sinks[static_cast<std::size_t>(h)]), sum = std::exp(wide_sinks[static_cast<std::size_t>(h)] - largest);
    for (double x : s) sum += std::exp(x - largest);
    for (double& x : s) x = std::exp(x - largest) / sum;
    if (log_sum) *log_sum = largest + std::log(sum);
    return s;
  }
  std::vector<double> forward(const std::vector<double>& qs, const std::vector<double>& entries, std::vector<double>* log_sums = nullptr) const {
    std::vector<double> o(std::size_t(T) * c.heads * value);
    if (log_sums) log_sums->assign(std::size_t(T) * c.heads, 0.0);
    for (int t = 0; t < T; ++t)
      for (int h = 0; h < c.heads; ++h) {
        const std::vector<int> ks = keys(t);
        const std::vector<double> p = probabilities(qs, entries, t, h, log_sums ? &(*log_sums)[t * c.heads + h] : nullptr);
        for (std::size_t k = 0; k < ks.size(); ++k)
          for (int i = 0; i < value; ++i) o[(std::size_t(t) * c.heads + h) * value + i] += p[k] * entry(entries, t, ks[k])[value_column(h) + i];
      }
    return o;
  }
  double objective(const std::vector<double>& qs, const std::vector<double>& entries) const {
    const std::vector<double> o = forward(qs, entries);
    double sum = 0;
    for (std::size_t i = 0; i < o.size(); ++i) sum += o[i] * dout[i];
    return sum;
  }

  // The order of attention.h, naively.
  struct Written {
    std::vector<float> o, log_sum, dq, dentry, dsink;
  };
  Written written(bool backward) const {
    Written w;
    const int H = c.heads, L = value;
    w.o.assign(std::size_t(T) * H * L, 0), w.log_sum.assign(std::size_t(T) * H, 0);
    const auto score = [&](int t, int h, int p) {
      return dot16<ScalarVec>(&q[(std::size_t(t) * H + h) * key], entry(cache, t, p) + key_column(h), key) * scale;
    };
    for (int t = 0; t < T; ++t)
      for (int h = 0; h < H; ++h) {
        const std::vector<int> ks = keys(t);
        float* o = &w.o[(std::size_t(t) * H + h) * L];
        float largest = 0, denominator = 0;
        for (std::size_t at = 0, end; at < ks.size(); at = end) {
          end = at + 1;  // blocks of positions where all are seen, or of ranks of a selection
          const auto block_of = [&](std::size_t k) { return (c.top_k > 0 ? k : static_cast<std::size_t>(ks[k])) / 64; };
          while (end < ks.size() && block_of(end) == block_of(at)) ++end;
          float m = score(t, h, ks[at]);
          for (std::size_t k = at; k < end; ++k) m = std::max(m, score(t, h, ks[k]));
          const float next = at == 0 ? m : std::max(m, largest), alpha = exp_element<ScalarVec>(largest - next);
          float block_sum = 0;
          std::vector<float> block(L, 0.0f);
          for (std::size_t k = at; k < end; ++k) {
            const float p = exp_element<ScalarVec>(score(t, h, ks[k]) - next);
            block_sum += p;
            for (int i = 0; i < L; ++i) block[i] = fused(p, entry(cache, t, ks[k])[value_column(h) + i], block[i]);
          }
          denominator = at == 0 ? block_sum : fused(denominator, alpha, block_sum);
          for (int i = 0; i < L; ++i) o[i] = at == 0 ? block[i] : fused(o[i], alpha, block[i]);
          largest = next;
        }
        if (c.sinks) {
          const float sink = sinks[static_cast<std::size_t>(h)], next = std::max(largest, sink), alpha = exp_element<ScalarVec>(largest - next);
          denominator = fused(denominator, alpha, exp_element<ScalarVec>(sink - next));
          for (int i = 0; i < L; ++i) o[i] *= alpha;
          largest = next;
        }
        for (int i = 0; i < L; ++i) o[i] /= denominator;
        w.log_sum[std::size_t(t) * H + h] = largest + log_element<ScalarVec>(denominator);
      }
    if (!backward) return w;
    w.dq.assign(q.size(), 0), w.dentry.assign(std::size_t(T) * width, 0);
    struct Pair {
      float ds, p;
    };
    std::vector<std::vector<std::vector<Pair>>> pairs(T, std::vector<std::vector<Pair>>(H));  // [row][head][rank]
    for (int t = 0; t < T; ++t)
      for (int h = 0; h < H; ++h) {
        const std::size_t row = std::size_t(t) * H + h;
        const float delta = dot16<ScalarVec>(&dout[row * L], &w.o[row * L], L);
        if (c.sinks) w.dsink.push_back(exp_element<ScalarVec>(sinks[static_cast<std::size_t>(h)] - w.log_sum[row]) * (0.0f - delta));
        for (int p : keys(t)) {
          const float probability = exp_element<ScalarVec>(score(t, h, p) - w.log_sum[row]);
          const float ds = probability * (dot16<ScalarVec>(&dout[row * L], entry(cache, t, p) + value_column(h), L) - delta);
          pairs[t][h].push_back({ds, probability});
          for (int i = 0; i < key; ++i) w.dq[row * key + i] = fused(ds, entry(cache, t, p)[key_column(h) + i], w.dq[row * key + i]);
        }
        for (int i = 0; i < key; ++i) w.dq[row * key + i] *= scale;
      }
    std::vector<std::vector<int>> rank(T, std::vector<int>(longest(), -1));  // of each key in each row's list
    for (int t = 0; t < T; ++t) {
      int next = 0;
      for (int p : keys(t)) rank[t][p] = next++;
    }
    const int leaves = head_leaf_count(group);
    for (std::size_t s = 0; s + 1 < rows.begin.size(); ++s) {
      const int begin = rows.begin[s], end = rows.begin[s + 1];
      for (int p = 0; p < end - begin; ++p)
        for (int first = 0; first < end - begin; first += 64)
          for (int column = 0; column < width; ++column) {
            float leaf[8] = {};
            for (int g = 0; g < leaves; ++g)
              for (int t = begin + first; t < std::min(end, begin + first + 64); ++t) {
                if (rank[t][p] < 0) continue;
                for (int h = 0; h < H; ++h) {
                  if (h % group * leaves / group != g) continue;
                  const Pair pair = pairs[t][h][rank[t][p]];
                  const int k = column - key_column(h), v = column - value_column(h);
                  if (k >= 0 && k < key) leaf[g] = fused(pair.ds * scale, q[(std::size_t(t) * H + h) * key + k], leaf[g]);
                  if (v >= 0 && v < L) leaf[g] = fused(pair.p, dout[(std::size_t(t) * H + h) * L + v], leaf[g]);
                }
              }
            w.dentry[std::size_t(begin + p) * width + column] += join_pairwise(leaf, leaves);
          }
    }
    return w;
  }

  // On a bench: views of everything, forward and (if whole sequences) backward and target launched.
  struct Views {
    View o, log_sum, dq, dentry, target, keys_read, dsink;
  };
  AttentionForward forward_op(KernelBench& b) const {
    AttentionForward op;
    op.o = b.junk(T, c.heads * value), op.log_sum = b.junk(T, c.heads);
    op.q = b.floats(q, T, c.heads * key);
    op.cache = b.floats(cache, rows.slots(), width, c.cache);
    if (c.top_k > 0) op.selection = b.ints(selection, T, c.top_k), op.count = b.ints(count, T);
    op.rows = rows.view(b);
    op.rows.first_key = c.first_key;
    op.shape = shape;
    op.keys_read = b.zeros(T, c.heads, DType::i32);
    if (c.sinks) op.sinks = b.floats(sinks, 1, c.heads, c.cache);
    return op;
  }
  Views launch(KernelBench& b, bool backward) const {
    const AttentionForward f = forward_op(b);
    b.launch(&KernelTable::attention_forward, f);
    Views v{f.o, f.log_sum, {}, {}, {}, f.keys_read, {}};
    if (!backward) return v;
    AttentionBackward op;
    v.dq = op.dq = b.junk(T, c.heads * key), v.dentry = op.dentry = b.junk(T, width);
    op.dout = b.floats(dout, T, c.heads * value);
    op.o = f.o, op.log_sum = f.log_sum, op.q = f.q, op.cache = f.cache, op.selection = f.selection, op.count = f.count;
    op.rows = f.rows, op.shape = f.shape;
    b.launch(&KernelTable::attention_backward, op);
    if (c.sinks) {
      v.dsink = b.junk(T, c.heads);
      b.launch(&KernelTable::attention_sinks, AttentionSinks{v.dsink, op.dout, f.o, f.log_sum, f.sinks});
    }
    if (c.grouped()) return v;
    v.target = b.zeros(T, c.top_k > 0 ? c.top_k : longest());
    b.launch(&KernelTable::attention_target, AttentionTarget{v.target, f.log_sum, f.q, f.cache, f.selection, f.count, f.rows, f.shape});
    return v;
  }
  int longest() const {
    int n = 0;
    for (int t = 0; t < T; ++t) n = std::max(n, rows.visible(t));
    return n;
  }
};

std::vector<AttentionCase> forward_cases() {
  return {{3, 24, 8, 0, {{23, 0}, {1, 0}, {5, 130}, {2, 63}}},
          {4, 32, 8, 4, {{20, 0}, {17, 0}, {1, 99}}, DType::bf16},
          {8, 64, 8, 4, {{20, 0}, {20, 0}, {1, 40}}, DType::bf16},
          {5, 17, 16, 20, {{33, 0}, {1, 15}}},
          {1, 1, 14, 0, {{15, 0}}},
          {16, 33, 1, 70, {{40, 60}, {3, 200}}, DType::bf16},
          {6, 16, 17, 0, {{150, 0}}, DType::bf16},
          grouped(9, 3, 64, 64, 0, {{70, 0}, {1, 130}, {1, 0}}, DType::bf16),
          grouped(6, 2, 16, 16, 0, {{33, 100}, {1, 5}}),
          grouped(8, 2, 18, 7, 0, {{20, 0}, {1, 64}}),
          grouped(4, 4, 33, 40, 5, {{20, 0}, {17, 3}}, DType::bf16),
          grouped(5, 1, 8, 24, 0, {{15, 60}}),
          windowed(1, grouped(6, 2, 16, 16, 0, {{5, 62}, {1, 0}})),
          windowed(5, grouped(6, 2, 16, 16, 0, {{70, 0}, {1, 5}})),
          windowed(64, grouped(9, 3, 24, 24, 0, {{150, 0}, {2, 127}}, DType::bf16)),
          windowed(70, grouped(16, 1, 18, 7, 0, {{90, 61}, {1, 200}})),
          windowed(70, grouped(8, 2, 18, 7, 0, {{150, 0}, {20, 125}})),
          windowed(20, {6, 16, 17, 0, {{100, 0}}, DType::bf16}),
          with_sinks(grouped(9, 3, 24, 17, 0, {{70, 0}, {1, 130}, {1, 0}}, DType::bf16)),
          with_sinks(grouped(17, 1, 8, 8, 0, {{33, 100}, {1, 5}})),
          with_sinks(windowed(5, grouped(6, 2, 16, 16, 0, {{70, 0}, {1, 5}}))),
          with_sinks(windowed(70, grouped(8, 2, 18, 7, 0, {{20, 125}}, DType::bf16))),
          from_key(1, {6, 16, 17, 0, {{150, 0}, {1, 0}, {1, 64}, {3, 127}}, DType::bf16}),
          from_key(3, grouped(9, 3, 24, 24, 0, {{70, 0}, {2, 1}, {1, 200}})),
          // several rows of a block together: 7 heads x 2 rows, 1 x 8, 2 x 8, of 128 columns, 8 x 2; more heads of one row than a tile has
          grouped(7, 1, 20, 24, 0, {{20, 110}, {1, 70}}),
          grouped(2, 2, 24, 40, 0, {{52, 100}}),
          grouped(4, 2, 128, 16, 0, {{36, 100}}, DType::bf16),
          grouped(8, 1, 16, 33, 0, {{20, 110}}),
          grouped(13, 1, 8, 17, 0, {{9, 60}}),
          windowed(70, grouped(7, 1, 18, 40, 0, {{40, 100}})),
          from_key(64, grouped(7, 1, 18, 24, 0, {{40, 110}})),  // the first block of rows together is the second
          // rows that are each the only one of their sequence, as in decoding; some with more blocks of keys than are under way at once
          grouped(9, 3, 64, 64, 0, {{1, 130}, {1, 63}, {1, 0}, {1, 700}, {1, 5}}),
          grouped(9, 3, 64, 64, 0, {{1, 1100}, {1, 64}}, DType::bf16),
          grouped(8, 2, 18, 7, 0, {{1, 200}, {1, 3}, {1, 66}}),
          grouped(8, 2, 18, 7, 0, {{1, 1023}, {1, 5}}),  // the first ends where the blocks under way end
          grouped(6, 2, 16, 16, 0, {{1, 70}, {3, 100}, {1, 5}, {1, 200}, {2, 0}, {1, 64}}),
          grouped(11, 1, 33, 40, 0, {{1, 3300}}, DType::bf16),
          windowed(70, grouped(6, 2, 24, 20, 0, {{1, 130}, {1, 20}, {1, 1200}})),
          with_sinks(windowed(128, grouped(8, 2, 18, 17, 0, {{1, 500}, {1, 4}}, DType::bf16))),
          with_sinks(grouped(5, 5, 16, 16, 0, {{1, 2100}, {1, 0}})),
          from_key(70, grouped(4, 2, 16, 24, 0, {{1, 150}, {1, 10}, {1, 69}}))};
}
std::vector<AttentionCase> training_cases() {
  return {{3, 24, 8, 0, {{23, 0}, {1, 0}, {70, 0}}},
          {4, 32, 8, 4, {{20, 0}, {17, 0}, {1, 0}}, DType::bf16},
          {8, 64, 8, 4, {{20, 0}, {150, 0}}, DType::bf16},
          {5, 17, 16, 20, {{33, 0}, {1, 0}}},
          {16, 33, 1, 70, {{140, 0}}},
          {6, 48, 17, 0, {{33, 0}, {15, 0}}, DType::bf16},
          {1, 15, 2, 3, {{17, 0}}},
          grouped(9, 3, 64, 64, 0, {{70, 0}, {1, 0}, {20, 0}}, DType::bf16),
          grouped(6, 2, 16, 16, 0, {{150, 0}}),
          grouped(8, 2, 18, 7, 0, {{20, 0}, {3, 0}}),
          grouped(4, 4, 33, 40, 5, {{20, 0}, {17, 0}}, DType::bf16),
          grouped(5, 1, 8, 24, 0, {{65, 0}}),
          {2, 250, 30, 0, {{9, 0}}},  // wide entries, of several column ranges
          grouped(2, 1, 410, 400, 0, {{5, 0}}, DType::bf16),
          windowed(1, grouped(6, 2, 16, 16, 0, {{66, 0}})),
          windowed(5, grouped(6, 2, 16, 16, 0, {{70, 0}, {3, 0}})),
          windowed(64, grouped(9, 3, 24, 24, 0, {{150, 0}, {20, 0}}, DType::bf16)),
          windowed(70, grouped(16, 1, 18, 7, 0, {{140, 0}})),
          windowed(70, grouped(8, 2, 18, 7, 0, {{150, 0}})),
          with_sinks(grouped(9, 3, 24, 17, 0, {{70, 0}, {1, 0}}, DType::bf16)),
          with_sinks(windowed(20, grouped(6, 2, 16, 16, 0, {{90, 0}, {3, 0}}))),
          from_key(1, {4, 32, 8, 0, {{150, 0}, {1, 0}, {2, 0}}}),
          from_key(1, {3, 24, 8, 0, {{70, 0}, {9, 0}}, DType::bf16}),
          from_key(6, grouped(8, 2, 18, 7, 0, {{150, 0}, {5, 0}})),
          grouped(7, 1, 18, 24, 0, {{69, 0}}),
          grouped(2, 2, 18, 40, 0, {{77, 0}}),
          grouped(4, 2, 128, 16, 0, {{75, 0}}, DType::bf16),
          grouped(8, 1, 16, 33, 0, {{67, 0}}),
          windowed(70, grouped(7, 1, 18, 24, 0, {{140, 0}})),
          from_key(64, {3, 24, 8, 0, {{150, 0}, {9, 0}}}),
          from_key(70, grouped(8, 2, 18, 7, 0, {{150, 0}}))};
}

TEST(Attention, ForwardAgainstDouble) {
  for (const AttentionCase& c : forward_cases()) {
    const AttentionProblem p(c);
    KernelBench b;
    const AttentionProblem::Views v = p.launch(b, false);
    std::vector<double> log_sums;
    expect_close(b.read(v.o), p.forward(widened(p.q), widened(p.cache), &log_sums), 1e-5, "o");
    expect_close(b.read(v.log_sum), log_sums, 1e-5, "log_sum");
  }
}

TEST(Attention, BackwardAgainstFiniteDifferences) {
  for (const AttentionCase& c :
       {AttentionCase{3, 10, 4, 0, {{7, 0}, {1, 0}, {9, 0}}}, AttentionCase{4, 17, 3, 3, {{11, 0}, {2, 0}}}, grouped(6, 2, 10, 10, 0, {{9, 0}, {4, 0}}),
        grouped(4, 4, 18, 5, 0, {{11, 0}}), windowed(3, grouped(4, 2, 6, 5, 0, {{11, 0}, {2, 0}})),
        with_sinks(windowed(4, grouped(4, 2, 6, 5, 0, {{9, 0}, {1, 0}}))), from_key(1, {3, 10, 4, 0, {{7, 0}, {1, 0}, {9, 0}}})}) {
    const AttentionProblem p(c);
    KernelBench b;
    const AttentionProblem::Views v = p.launch(b, true);
    const std::vector<double> q = widened(p.q), cache = widened(p.cache);
    expect_close(b.read(v.dq), finite_difference([&](const auto& x) { return p.objective(x, cache); }, q), 1e-5, "dq");
    const std::vector<double> by_slot = finite_difference([&](const auto& x) { return p.objective(q, x); }, cache);
    std::vector<double> by_row;
    for (int t = 0; t < p.T; ++t)
      by_row.insert(by_row.end(), by_slot.begin() + p.rows.slot_of_row(t) * p.width, by_slot.begin() + (p.rows.slot_of_row(t) + 1) * p.width);
    expect_close(b.read(v.dentry), by_row, 1e-5, "dentry");
    if (!c.sinks) continue;
    const auto with = [&](const std::vector<double>& x) {
      AttentionProblem other = p;
      other.wide_sinks = x;
      return other.objective(q, cache);
    };
    std::vector<float> of_heads(static_cast<std::size_t>(c.heads));
    const std::vector<float> of_rows = b.read(v.dsink);
    for (std::size_t i = 0; i < of_rows.size(); ++i) of_heads[i % of_heads.size()] += of_rows[i];
    expect_close(of_heads, finite_difference(with, p.wide_sinks), 1e-5, "sinks");
  }
}

TEST(Attention, TargetIsTheSumOfProbabilities) {
  for (const AttentionCase& c : training_cases()) {
    if (c.grouped()) continue;  // no indexer there
    const AttentionProblem p(c);
    KernelBench b;
    const AttentionProblem::Views v = p.launch(b, true);
    std::vector<double> want(static_cast<std::size_t>(v.target.size()), 0.0);
    for (int t = 0; t < p.T; ++t)
      for (int h = 0; h < c.heads; ++h) {
        const std::vector<double> share = p.probabilities(widened(p.q), widened(p.cache), t, h);
        const std::vector<int> keys = p.keys(t);
        for (std::size_t k = 0; k < share.size(); ++k) want[std::size_t(t) * v.target.cols + (c.top_k > 0 ? k : static_cast<std::size_t>(keys[k]))] += share[k];
      }
    expect_close(b.read(v.target), want, 1e-5, "target");
  }
}

TEST(Attention, BitsAreThoseOfTheWrittenOrder) {
  for (const AttentionCase& c : forward_cases()) {
    const AttentionProblem p(c);
    const AttentionProblem::Written w = p.written(false);
    for (int threads : {1, 3}) {
      KernelBench b({.kind = BackendKind::cpu, .isa = {}, .threads = threads});
      const AttentionProblem::Views v = p.launch(b, false);
      expect_same_words(words_of(b.read(v.o)), words_of(w.o), "o");
      expect_same_words(words_of(b.read(v.log_sum)), words_of(w.log_sum), "log_sum");
    }
  }
  std::vector<AttentionCase> cases = training_cases();
  cases.push_back({64, 16, 2, 0, {{140, 0}, {7, 0}}});    // keys in tiles, two query blocks and more
  cases.push_back({64, 16, 2, 150, {{170, 0}}});          // the same over a selection
  cases.push_back({64, 16, 2, 70, {{600, 0}}});           // over so many keys that they are not cut
  cases.push_back({1, 3, 2, 40, {{2300, 0}}});            // more keys than eleven bits count
  cases.push_back(grouped(2, 2, 64, 16, 0, {{133, 0}}));  // the last rows are too few to transpose the whole blocks before them
  for (const AttentionCase& c : cases) {
    const AttentionProblem p(c);
    const AttentionProblem::Written w = p.written(true);
    for (int threads : {1, 3}) {
      KernelBench b({.kind = BackendKind::cpu, .isa = {}, .threads = threads});
      const AttentionProblem::Views v = p.launch(b, true);
      expect_same_words(words_of(b.read(v.dq)), words_of(w.dq), "dq");
      expect_same_words(words_of(b.read(v.dentry)), words_of(w.dentry), "dentry");
      if (c.sinks) expect_same_words(words_of(b.read(v.dsink)), words_of(w.dsink), "dsink");
    }
  }
}

// A sink far below every score adds nothing but its rounding; one far above leaves nothing of the values.
TEST(Attention, ASinkTakesItsShareOfTheSoftmax) {
  AttentionProblem p(with_sinks(grouped(4, 2, 16, 16, 0, {{20, 0}})));
  KernelBench b;
  const auto output = [&](float sink) {
    p.sinks.assign(4, sink);
    return b.read(p.launch(b, false).o);
  };
  const std::vector<float> without = b.read(AttentionProblem(grouped(4, 2, 16, 16, 0, {{20, 0}})).launch(b, false).o), low = output(-200), high = output(200);
  expect_same_words(words_of(low), words_of(without), "a sink of -200");
  for (const float x : high) EXPECT_EQ(x, 0.0f);
  EXPECT_NE(words_of(output(0)), words_of(without));
}

TEST(Attention, SameEverywhere) {
  for (const AttentionCase& c : forward_cases()) {
    const AttentionProblem p(c);
    expect_same_everywhere([&](KernelBench& b) {
      const AttentionProblem::Views v = p.launch(b, false);
      b.record(v.o), b.record(v.log_sum), b.record(v.keys_read);
    });
  }
  for (const AttentionCase& c : training_cases()) {
    const AttentionProblem p(c);
    expect_same_everywhere([&](KernelBench& b) {
      const AttentionProblem::Views v = p.launch(b, true);
      b.record(v.dq), b.record(v.dentry);
      if (v.dsink) b.record(v.dsink);
      if (v.target) b.record(v.target);
    });
  }
}

// Every query head counts the keys of its row: those of the selection, or all that it sees; a second forward adds as many.
TEST(Attention, TheKeysThatAreReadAreCounted) {
  for (const AttentionCase& c : forward_cases()) {
    const AttentionProblem p(c);
    std::vector<std::int32_t> want;
    for (int t = 0; t < p.T; ++t) want.insert(want.end(), static_cast<std::size_t>(c.heads), 2 * static_cast<std::int32_t>(p.keys(t).size()));
    for (int threads : {1, 3}) {
      KernelBench b({.kind = BackendKind::cpu, .isa = {}, .threads = threads});
      const AttentionForward op = p.forward_op(b);
      for (int i = 0; i < 2; ++i) b.launch(&KernelTable::attention_forward, op);
      EXPECT_EQ(b.read_ints(op.keys_read), want);
    }
  }
}

TEST(Attention, RowAloneHasTheBitsOfTheBatch) {
  for (BackendKind kind : {BackendKind::cpu, BackendKind::traced})
    for (const AttentionCase& c : forward_cases()) {
      const AttentionProblem p(c);
      KernelBench b({.kind = kind, .isa = {}, .threads = 2});
      const AttentionForward all = p.forward_op(b);
      b.launch(&KernelTable::attention_forward, all);
      AttentionForward one = all;
      one.o = b.junk(p.T, c.heads * p.value), one.log_sum = b.junk(p.T, c.heads);
      const View o = one.o, log_sum = one.log_sum, keys_read = b.zeros(p.T, c.heads, DType::i32);
      for (int t = 0; t < p.T; ++t) {
        one.o = o.row_range(t, 1), one.log_sum = log_sum.row_range(t, 1), one.q = all.q.row_range(t, 1), one.keys_read = keys_read.row_range(t, 1);
        if (c.top_k > 0) one.selection = all.selection.row_range(t, 1), one.count = all.count.row_range(t, 1);
        one.rows = p.rows.part(all.rows, t, 1);
        b.launch(&KernelTable::attention_forward, one);
      }
      expect_same_words(words_of(b.read(o)), words_of(b.read(all.o)), "o");
      expect_same_words(words_of(b.read(log_sum)), words_of(b.read(all.log_sum)), "log_sum");
      EXPECT_EQ(b.read_ints(keys_read), b.read_ints(all.keys_read));
      if (b.traced()) expect_same_words(b.backend().stream().read_hashes(o).get(), b.backend().stream().read_hashes(all.o).get(), "hashes of o");
    }
}

TEST(Attention, FullSelectionHasTheBitsOfDense) {
  for (AttentionCase c : {AttentionCase{4, 32, 8, 0, {{20, 0}, {90, 0}}}, AttentionCase{3, 20, 8, 0, {{140, 0}}, DType::bf16}}) {
    const AttentionProblem dense(c);
    c.top_k = dense.longest();
    const AttentionProblem full(c);
    KernelBench b;
    const AttentionProblem::Views x = dense.launch(b, true), y = full.launch(b, true);
    expect_same_words(words_of(b.read(x.o)), words_of(b.read(y.o)), "o");
    expect_same_words(words_of(b.read(x.dq)), words_of(b.read(y.dq)), "dq");
    expect_same_words(words_of(b.read(x.dentry)), words_of(b.read(y.dentry)), "dentry");
    expect_same_words(words_of(b.read(x.target)), words_of(b.read(y.target)), "target");
  }
}

TEST(Attention, ANanStaysInItsRow) {
  struct NanRow {
    AttentionCase c;
    int row;
  };
  for (const NanRow& c :
       {NanRow{{4, 32, 8, 0, {{20, 0}, {5, 0}}}, 7}, NanRow{{4, 32, 8, 0, {{70, 0}, {5, 0}}}, 66},  // the second among rows that are computed together
        NanRow{grouped(4, 2, 40, 32, 0, {{1, 150}, {1, 10}}), 0}}) {
    const AttentionProblem clean(c.c);
    AttentionProblem bad = clean;
    for (int i = 0; i < bad.key; ++i) bad.q[std::size_t(c.row * 4 + 1) * static_cast<std::size_t>(bad.key) + static_cast<std::size_t>(i)] = std::nanf("");
    expect_same_everywhere([&](KernelBench& b) {
      const AttentionProblem::Views of_bad = bad.launch(b, false);
      const std::vector<float> x = b.read(clean.launch(b, false).o), y = b.read(of_bad.o);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const bool hit = i / 32 == static_cast<std::size_t>(c.row * 4 + 1);
        EXPECT_EQ(std::isnan(y[i]), hit);
        if (!hit) {
          EXPECT_EQ(float_bits(x[i]), float_bits(y[i]));
        }
      }
      b.record(of_bad.o), b.record(of_bad.log_sum);
    });
  }
}

// A sequence that continues another has the gradients of the whole one whose first rows have none of their own: of its rows, and of all
// its keys, those before its first row included.
TEST(Attention, BackwardOfRowsThatContinueASequence) {
  const std::vector<PagedRows::Sequence> whole = {{140, 0}, {50, 0}, {16, 0}}, continuing = {{70, 70}, {1, 49}, {16, 0}};
  for (const AttentionCase& c : {grouped(6, 2, 10, 12, 0, whole), grouped(4, 4, 16, 16, 0, whole, DType::bf16), AttentionCase{6, 18, 6, 0, whole},
                                 AttentionCase{4, 20, 8, 9, whole, DType::bf16}}) {
    AttentionProblem all(c);
    AttentionCase rest = c;
    rest.sequences = continuing;
    AttentionProblem part(rest);
    const auto columns_of = [&](std::vector<float>& values) { return static_cast<std::ptrdiff_t>(values.size()) / all.T; };
    // The same values, rows of the continuing sequences alone; rows before them have no gradient.
    const auto take = [&](std::vector<float>& from, std::vector<float>& to, bool clear) {
      const std::ptrdiff_t n = columns_of(from);
      to.clear();
      for (std::size_t q = 0; q < whole.size(); ++q) {
        const auto begin = from.begin() + all.rows.begin[q] * n, own = begin + continuing[q].prefix * n;
        if (clear) std::fill(begin, own, 0.0f);
        to.insert(to.end(), own, from.begin() + all.rows.begin[q + 1] * n);
      }
    };
    take(all.q, part.q, false);
    take(all.dout, part.dout, true);
    part.cache = all.cache;
    ASSERT_EQ(part.rows.pages, all.rows.pages);
    if (c.top_k > 0) {
      part.selection.clear(), part.count.clear();
      for (std::size_t q = 0; q < whole.size(); ++q)
        for (std::int32_t t = all.rows.begin[q] + continuing[q].prefix; t < all.rows.begin[q + 1]; ++t) {
          part.selection.insert(part.selection.end(), all.selection.begin() + t * c.top_k, all.selection.begin() + (t + 1) * c.top_k);
          part.count.push_back(all.count[static_cast<std::size_t>(t)]);
        }
    }
    const auto run = [&](KernelBench& b, const AttentionProblem& p, bool continues, View& dq) {
      Rows rows = p.rows.view(b);
      const View q = b.floats(p.q, p.T, c.heads * p.key), o = b.junk(p.T, c.heads * p.value), log_sum = b.junk(p.T, c.heads),
                 cache = b.floats(p.cache, p.rows.slots(), p.width, c.cache), selection = c.top_k > 0 ? b.ints(p.selection, p.T, c.top_k) : View(),
                 count = c.top_k > 0 ? b.ints(p.count, p.T) : View(), dentry = b.junk(all.T, p.width);
      b.launch(&KernelTable::attention_forward, AttentionForward{o, log_sum, q, cache, selection, count, rows, p.shape});
      if (continues) {
        rows.first = b.ints({70, 49, 0}, 3);
        rows.key_begin = b.ints({0, 140, 190, 206}, 4);
      }
      dq = b.junk(p.T, c.heads * p.key);
      b.launch(&KernelTable::attention_backward,
               AttentionBackward{dq, dentry, b.floats(p.dout, p.T, c.heads * p.value), o, log_sum, q, cache, selection, count, rows, p.shape});
      return dentry;
    };
    expect_same_everywhere([&](KernelBench& b) {
      View dq, dq_of_all;
      const View got = run(b, part, true, dq), want = run(b, all, false, dq_of_all);
      EXPECT_EQ(b.read(got), b.read(want));  // zeros of either sign are equal
      std::vector<float> dq_rows, of_all = b.read(dq_of_all);
      take(of_all, dq_rows, false);
      EXPECT_EQ(b.read(dq), dq_rows);
      b.record(got);
      b.record(dq);
    });
  }
}

}  // namespace
}  // namespace lockstep
