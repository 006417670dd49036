#include "kernels/index/index.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/cache/paged_rows_test_tools.h"
#include "kernels/launch.h"
#include "numerics/form.h"
#include "numerics/isa/scalar.h"

namespace lockstep {
namespace {

struct IndexCase {
  int heads, size, top_k;  // index_loss: top_k 0 is dense
  std::vector<PagedRows::Sequence> sequences;
  DType cache = DType::f32;
  bool coarse = false;  // few different values: many exactly equal scores
  int first_key = 0;    // Rows::first_key, of selection
};

struct IndexProblem {
  IndexCase c;
  PagedRows rows;
  int T;
  std::vector<float> q, w, cache, target;
  std::vector<std::int32_t> selection, count;

  explicit IndexProblem(const IndexCase& k)
      : c(k),
        rows(k.sequences, 4),
        T(rows.rows()),
        q(random_floats(std::int64_t{T} * k.heads * k.size, 1)),
        w(random_floats(std::int64_t{T} * k.heads, 2)),
        cache(random_floats(std::int64_t{rows.slots()} * k.size, 3)),
        target(random_floats(std::int64_t{T} * width(), 4, 0.01, 1.0)) {
    if (c.coarse)
      for (std::vector<float>* v : {&q, &w, &cache})
        for (float& x : *v) x = std::round(x);
    cache = as_stored(cache, c.cache);
    if (c.top_k > 0) selection = rows.random_selection(c.top_k, count);
  }
  int longest() const {
    int n = 0;
    for (int t = 0; t < rows.rows(); ++t) n = std::max(n, rows.visible(t));
    return n;
  }
  int width() const { return c.top_k > 0 ? c.top_k : longest(); }

  // The order of index.h, naively.
  float score(int t, int p) const {
    const float head_scale = 1.0f / std::sqrt(float(c.heads)), key_scale = 1.0f / std::sqrt(float(c.size));
    float sum = 0;
    for (int j = 0; j < c.heads; ++j) {
      const float dot =
          dot16<ScalarVec>(&q[(std::size_t(t) * c.heads + j) * c.size], &cache[std::size_t(rows.slot(rows.sequence[t], p)) * c.size], c.size) * key_scale;
      sum = fused(w[std::size_t(t) * c.heads + j] * head_scale, 0.0f > dot ? 0.0f : dot, sum);
    }
    return sum;
  }
  std::vector<std::int32_t> selected(int t) const {
    std::vector<std::int32_t> order;
    std::vector<float> s;
    for (int p = 0; p < rows.visible(t); ++p) s.push_back(score(t, p));
    for (int p = std::min(c.first_key, rows.visible(t) - 1); p < rows.visible(t); ++p) order.push_back(p);
    if (static_cast<int>(order.size()) > c.top_k) {
      const auto before = [&](int a, int b) {
        if (std::isnan(s[a]) || std::isnan(s[b])) return !std::isnan(s[a]) && std::isnan(s[b]);
        return s[a] > s[b];
      };
      std::stable_sort(order.begin(), order.end(), before);
      order.resize(static_cast<std::size_t>(c.top_k));
      std::sort(order.begin(), order.end());
    }
    return order;
  }
  IndexSelect select_op(KernelBench& b) const {
    IndexSelect op;
    op.selection = b.ints(std::vector<std::int32_t>(std::size_t(T) * c.top_k, 77), T, c.top_k);
    op.count = b.ints(std::vector<std::int32_t>(std::size_t(T), 77), T);
    op.flags = b.ints(std::vector<std::int32_t>(std::size_t(T), 4), T);
    op.q = b.floats(q, T, c.heads * c.size), op.w = b.floats(w, T, c.heads);
    op.cache = b.floats(cache, rows.slots(), c.size, c.cache);
    op.rows = rows.view(b);
    op.rows.first_key = c.first_key;
    op.heads = c.heads, op.size = c.size, op.top_k = c.top_k;
    return op;
  }

  // Sum over rows of KL(p || softmax(I)), in double.
  std::vector<double> losses(const std::vector<double>& qs, const std::vector<double>& ws, const std::vector<double>& ks) const {
    std::vector<double> loss;
    for (int t = 0; t < T; ++t) {
      std::vector<double> s;
      double total = 0, sum = 0, kl = 0;
      const int n = c.top_k > 0 ? count[t] : rows.visible(t);
      for (int k = 0; k < n; ++k) {
        const int p = c.top_k > 0 ? selection[t * c.top_k + k] : k;
        double x = 0;
        for (int j = 0; j < c.heads; ++j) {
          double dot = 0;
          for (int i = 0; i < c.size; ++i)
            dot += qs[(std::size_t(t) * c.heads + j) * c.size + i] * ks[std::size_t(rows.slot(rows.sequence[t], p)) * c.size + i];
          x += ws[std::size_t(t) * c.heads + j] / std::sqrt(double(c.heads)) * std::max(0.0, dot / std::sqrt(double(c.size)));
        }
        s.push_back(x), sum += std::exp(x), total += target[std::size_t(t) * width() + k];
      }
      for (int k = 0; k < n; ++k) {
        const double p = target[std::size_t(t) * width() + k] / total;
        if (p > 0) kl += p * (std::log(p) - s[k] + std::log(sum));
      }
      loss.push_back(kl);
    }
    return loss;
  }
  IndexLoss loss_op(KernelBench& b, float weight) const {
    IndexLoss op;
    op.dq = b.junk(T, c.heads * c.size), op.dw = b.junk(T, c.heads), op.dk = b.junk(T, c.size), op.loss = b.junk(T, 1);
    op.q = b.floats(q, T, c.heads * c.size), op.w = b.floats(w, T, c.heads);
    op.cache = b.floats(cache, rows.slots(), c.size, c.cache);
    op.target = b.floats(target, T, width());
    if (c.top_k > 0) op.selection = b.ints(selection, T, c.top_k), op.count = b.ints(count, T);
    op.rows = rows.view(b);
    op.heads = c.heads, op.size = c.size, op.weight = weight;
    return op;
  }
};

std::vector<IndexCase> select_cases() {
  return {{16, 16, 4, {{20, 0}, {20, 0}, {3, 0}, {1, 90}}, DType::bf16},
          {16, 16, 5, {{23, 0}, {7, 60}}},
          {3, 17, 20, {{33, 0}, {2, 130}}},
          {1, 33, 1, {{15, 0}, {1, 0}}, DType::bf16},
          {5, 15, 64, {{150, 0}}},
          {4, 128, 4, {{20, 0}, {1, 70}}, DType::bf16},
          {2, 4, 4, {{40, 0}, {1, 300}}, DType::f32, true},
          {2, 4, 30, {{90, 0}}, DType::bf16, true},
          {16, 16, 3, {{2, 9000}}},
          {2, 16, 40, {{1, 9000}}, DType::f32, true},  // its keys are cut over threads
          {4, 16, 4, {{40, 0}, {1, 0}, {1, 4}, {2, 90}}, DType::bf16, false, 1},
          {2, 4, 20, {{90, 0}, {1, 20}}, DType::f32, true, 1},
          {2, 4, 4, {{40, 0}}, DType::f32, true, 7}};
}

TEST(IndexSelect, TheTotalOrderExactly) {
  for (const IndexCase& c : select_cases()) {
    const IndexProblem p(c);
    KernelBench b;
    const IndexSelect op = p.select_op(b);
    b.launch(&KernelTable::index_select, op);
    const std::vector<std::int32_t> got = b.read_ints(op.selection), count = b.read_ints(op.count), flags = b.read_ints(op.flags);
    for (int t = 0; t < p.T; ++t) {
      std::vector<std::int32_t> want = p.selected(t);
      ASSERT_EQ(count[t], static_cast<int>(want.size())) << t;
      want.resize(static_cast<std::size_t>(c.top_k), -1);
      EXPECT_EQ(std::vector<std::int32_t>(got.begin() + t * c.top_k, got.begin() + (t + 1) * c.top_k), want) << "row " << t;
      EXPECT_EQ(flags[t], 4);
    }
  }
}

// One head of one element: a key's score is w * max(0, key), as an engine's longest contexts have a million of them.
TEST(IndexSelect, LongContextsAreTheSortExactly) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  enum class Kind { random, coarse, ascending, descending, special, few_numbers, equal };
  const auto value = [&](Kind kind, int i, float drawn) -> float {
    switch (kind) {
      case Kind::random:
        return drawn;
      case Kind::coarse:
        return std::round(drawn * 40);  // half of them are 0 or -0, all have many equals
      case Kind::ascending:
        return 1e-6f * static_cast<float>(i);
      case Kind::descending:
        return 1.0f - 1e-7f * static_cast<float>(i);
      case Kind::special:
        return i % 1000 == 7 ? nan : i % 5000 == 1 ? inf : i % 3000 == 2 ? -inf : drawn;
      case Kind::few_numbers:  // fewer than are selected
        return i % 100 == 5 ? drawn : nan;
      case Kind::equal:
        return 1;
    }
    return 0;
  };
  struct Long {
    Kind kind;
    PagedRows::Sequence rows;
    float weight;
    int top_k = 300;
  };
  const PagedRows::Sequence longest_context{1, (1 << 20) - 1};
  std::vector<Long> cases = {
      {Kind::random, longest_context, 1}, {Kind::coarse, longest_context, -1}, {Kind::special, longest_context, 1}, {Kind::special, longest_context, -1}};
  for (const Kind kind : {Kind::random, Kind::coarse, Kind::ascending, Kind::descending, Kind::special, Kind::few_numbers, Kind::equal})
    for (const float weight : {1.0f, -1.0f})
      for (const int top_k : {4, 300}) cases.push_back({kind, {9, 20000}, weight, top_k});
  for (const Long& c : cases) {
    const PagedRows rows({c.rows}, 16);
    const int T = rows.rows(), longest = rows.visible(T - 1);
    const std::vector<float> drawn = random_floats(longest, 5);
    std::vector<float> cache(static_cast<std::size_t>(rows.slots()));
    std::vector<float> scores;
    for (int p = 0; p < longest; ++p) {
      const float key = value(c.kind, p, drawn[static_cast<std::size_t>(p)]);
      cache[static_cast<std::size_t>(rows.slot(0, p))] = key;
      scores.push_back(fused(c.weight, 0.0f > key ? 0.0f : key, 0.0f));
    }
    std::vector<std::int32_t> want, flags;
    for (int t = 0; t < T; ++t) {
      std::vector<std::int32_t> order(static_cast<std::size_t>(rows.visible(t)));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
        const float x = scores[static_cast<std::size_t>(a)], y = scores[static_cast<std::size_t>(b)];
        return std::isnan(x) || std::isnan(y) ? !std::isnan(x) && std::isnan(y) : x > y;
      });
      std::sort(order.begin(), order.begin() + c.top_k);
      want.insert(want.end(), order.begin(), order.begin() + c.top_k);
      flags.push_back(c.kind == Kind::special || c.kind == Kind::few_numbers ? 1 : 0);
    }
    for (const InstructionSet isa : {InstructionSet::scalar, InstructionSet::avx2, InstructionSet::avx512})
      for (const int threads : {1, 2, 5}) {
        if (!machine_has(isa)) continue;
        KernelBench b({.kind = BackendKind::cpu, .isa = isa, .threads = threads});
        IndexSelect op;
        op.selection = b.ints(std::vector<std::int32_t>(static_cast<std::size_t>(T * c.top_k), 77), T, c.top_k);
        op.count = b.zeros(T, 1, DType::i32), op.flags = b.zeros(T, 1, DType::i32);
        op.q = b.floats(std::vector<float>(static_cast<std::size_t>(T), 1.0f), T, 1);
        op.w = b.floats(std::vector<float>(static_cast<std::size_t>(T), c.weight), T, 1);
        op.cache = b.floats(cache, rows.slots(), 1);
        op.rows = rows.view(b);
        op.heads = op.size = 1, op.top_k = c.top_k;
        b.launch(&KernelTable::index_select, op);
        EXPECT_TRUE(b.read_ints(op.selection) == want)
            << "kind " << static_cast<int>(c.kind) << ", weight " << c.weight << ", top " << c.top_k << ", " << threads << " threads";
        EXPECT_EQ(b.read_ints(op.flags), flags) << "kind " << static_cast<int>(c.kind) << ", weight " << c.weight << ", " << threads << " threads, "
                                                << instruction_set_name(isa);
      }
  }
}

TEST(IndexSelect, ANanScoreFlagsItsRowAndIsLowest) {
  for (int top_k : {4, 30}) {
    IndexProblem p({4, 16, top_k, {{40, 0}, {3, 50}}});
    for (int i = 0; i < 16; ++i) p.cache[std::size_t(p.rows.slot(0, 33)) * 16 + i] = std::nanf("");  // seen by rows 33..39
    p.w[std::size_t(41) * 4] = std::nanf("");                                                        // all scores of row 41
    expect_same_everywhere([&](KernelBench& b) {
      const IndexSelect op = p.select_op(b);
      b.launch(&KernelTable::index_select, op);
      const std::vector<std::int32_t> got = b.read_ints(op.selection), flags = b.read_ints(op.flags);
      for (int t = 0; t < p.T; ++t) {
        const std::vector<std::int32_t> want = p.selected(t);
        for (std::size_t i = 0; i < want.size(); ++i) EXPECT_EQ(got[t * top_k + i], want[i]) << "row " << t;
        EXPECT_EQ(flags[t], (t >= 33 && t < 40) || t == 41 ? 5 : 4) << "row " << t;
      }
      b.record(op.selection);
    });
  }
}

TEST(IndexSelect, SameEverywhereAndRowByRow) {
  for (const IndexCase& c : select_cases()) {
    const IndexProblem p(c);
    expect_same_everywhere([&](KernelBench& b) {
      const IndexSelect op = p.select_op(b);
      b.launch(&KernelTable::index_select, op);
      b.record(op.selection), b.record(op.count), b.record(op.flags);
    });
    KernelBench b;
    const IndexSelect all = p.select_op(b);
    b.launch(&KernelTable::index_select, all);
    IndexSelect one = p.select_op(b);
    const View selection = one.selection;
    for (int t = 0; t < p.T; ++t) {
      one.selection = selection.row_range(t, 1), one.count = all.count.row_range(t, 1), one.flags = all.flags.row_range(t, 1);
      one.q = all.q.row_range(t, 1), one.w = all.w.row_range(t, 1), one.rows = p.rows.part(all.rows, t, 1);
      b.launch(&KernelTable::index_select, one);
    }
    EXPECT_EQ(b.read_ints(selection), b.read_ints(all.selection));
  }
}

std::vector<IndexCase> index_loss_cases() {
  return {{16, 16, 0, {{20, 0}, {1, 0}, {70, 0}}, DType::bf16},
          {16, 16, 4, {{20, 0}, {17, 0}}, DType::bf16},
          {3, 17, 20, {{33, 0}, {5, 0}}},
          {5, 33, 0, {{15, 0}}},
          {2, 150, 0, {{7, 0}}},
          {2, 20, 0, {{150, 0}, {9, 0}}},  // long ones are computed by all threads
          {3, 40, 6, {{130, 0}, {140, 0}}, DType::bf16},
          {2, 20, 70, {{150, 0}}, DType::bf16},  // a row's keys are more than a block
          {2, 20, 70, {{90, 0}}}};
}

TEST(IndexLoss, AgainstDoubleAndFiniteDifferences) {
  for (const IndexCase& c : index_loss_cases()) {
    const IndexProblem p(c);
    KernelBench b;
    const IndexLoss op = p.loss_op(b, 1.0f);
    b.launch(&KernelTable::index_loss, op);
    expect_close(b.read(op.loss), p.losses(widened(p.q), widened(p.w), widened(p.cache)), 1e-5, "loss");
  }
  for (const IndexCase& c : {IndexCase{3, 5, 0, {{9, 0}, {4, 0}}}, IndexCase{4, 17, 3, {{8, 0}, {1, 0}}}}) {
    const IndexProblem p(c);
    KernelBench b;
    const IndexLoss op = p.loss_op(b, 0.5f);
    b.launch(&KernelTable::index_loss, op);
    const std::vector<double> q = widened(p.q), w = widened(p.w), k = widened(p.cache);
    const auto half = [&](const auto& a, const auto& u, const auto& e) {
      double sum = 0;
      for (double l : p.losses(a, u, e)) sum += 0.5 * l;
      return sum;
    };
    expect_close(b.read(op.dq), finite_difference([&](const auto& x) { return half(x, w, k); }, q), 1e-5, "dq");
    expect_close(b.read(op.dw), finite_difference([&](const auto& x) { return half(q, x, k); }, w), 1e-5, "dw");
    const std::vector<double> by_slot = finite_difference([&](const auto& x) { return half(q, w, x); }, k);
    std::vector<double> by_row;
    for (int t = 0; t < p.T; ++t)
      by_row.insert(by_row.end(), by_slot.begin() + p.rows.slot_of_row(t) * c.size, by_slot.begin() + (p.rows.slot_of_row(t) + 1) * c.size);
    expect_close(b.read(op.dk), by_row, 1e-5, "dk");
  }
}

TEST(IndexLoss, AKeyWithoutTargetCostsNothing) {
  IndexProblem p({4, 16, 0, {{12, 0}}});
  for (int t = 0; t < p.T; ++t)
    if (t > 0) p.target[std::size_t(t) * p.width()] = 0.0f;
  KernelBench b;
  const IndexLoss op = p.loss_op(b, 1.0f);
  b.launch(&KernelTable::index_loss, op);
  expect_close(b.read(op.loss), p.losses(widened(p.q), widened(p.w), widened(p.cache)), 1e-5, "loss");
}

TEST(IndexLoss, SameEverywhereAndSequenceBySequence) {
  for (const IndexCase& c : index_loss_cases()) {
    const IndexProblem p(c);
    const auto record = [](KernelBench& b, const IndexLoss& op) { b.record(op.dq), b.record(op.dw), b.record(op.dk), b.record(op.loss); };
    expect_same_everywhere([&](KernelBench& b) {
      const IndexLoss op = p.loss_op(b, 0.25f);
      b.launch(&KernelTable::index_loss, op);
      record(b, op);
    });
    for (BackendKind kind : {BackendKind::cpu, BackendKind::traced}) {
      const BackendOptions options{.kind = kind, .isa = {}, .threads = 2};
      KernelBench together(options), apart(options);
      const IndexLoss all = p.loss_op(together, 0.25f);
      together.launch(&KernelTable::index_loss, all);
      record(together, all);
      const IndexLoss whole = p.loss_op(apart, 0.25f);
      for (std::size_t s = 0; s < c.sequences.size(); ++s) {
        const int begin = p.rows.begin[s], n = c.sequences[s].length;
        IndexLoss one = whole;
        for (View* v : {&one.dq, &one.dw, &one.dk, &one.loss, &one.q, &one.w, &one.target}) *v = v->row_range(begin, n);
        if (c.top_k > 0) one.selection = whole.selection.row_range(begin, n), one.count = whole.count.row_range(begin, n);
        one.rows = p.rows.part(whole.rows, begin, n);
        one.rows.sequence_begin = apart.ints({0, n}, 2);
        apart.launch(&KernelTable::index_loss, one);
      }
      record(apart, whole);
      expect_same_words(apart.bits(), together.bits(), "bits of sequences alone");
      expect_same_words(apart.hashes(), together.hashes(), "hashes of sequences alone");
    }
  }
}

}  // namespace
}  // namespace lockstep
