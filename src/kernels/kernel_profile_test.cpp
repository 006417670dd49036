// Profiles of kernels: what is counted is what was launched, work is that of the shapes by hand, and no bit changes.
#include "kernels/kernel_profile.h"

#include <algorithm>
#include <numeric>

#include "kernels/cache/paged_rows_test_tools.h"
#include "kernels/planted_kernel_test_tools.h"
#include "numerics/flop.h"
#include "observe/trace.h"

namespace lockstep {
namespace {

constexpr std::int64_t kRows = 5, kOutputs = 20, kInputs = 7;  // the weight has 2 panels of 16 outputs

struct ProfiledProduct {
  View x, y;
  PackedWeight w;
  explicit ProfiledProduct(KernelBench& bench) : x(bench.floats(random_floats(kRows * kInputs, 1), kRows, kInputs)), y(bench.junk(kRows, kOutputs)) {
    w.outputs = kOutputs;
    w.inputs = kInputs;
    w.data = bench.floats(random_floats(w.packed_size(), 2), 1, w.packed_size());
  }
  LinearForward forward() const { return {.y = y, .x = x, .w = w}; }
};

const KernelTotals& totals_of(const std::vector<KernelTotals>& all, std::string_view name) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const KernelTotals& one) { return one.name == name; });
  EXPECT_NE(found, all.end()) << name;
  return *found;
}

TEST(KernelProfile, CountsWhatIsLaunchedAndChangesNoBit) {
  KernelBench bench({.threads = 2});
  const ProfiledProduct product(bench);
  const View sum = bench.junk(kRows, kOutputs);
  bench.launch(&KernelTable::linear_forward, product.forward());
  const std::vector<float> plain = bench.read(product.y);
  std::vector<KernelTotals> totals;
  const KernelTable& table = kernel_table(bench.backend().isa(), false);
  const auto unmeasured = table.linear_forward;
  {
    const KernelProfile profile;
    EXPECT_NE(table.linear_forward, unmeasured);
    for (int i = 0; i < 3; ++i) bench.launch(&KernelTable::linear_forward, product.forward());
    bench.launch(&KernelTable::add, Add{sum, product.y, product.y});
    totals = profile.totals();
    EXPECT_EQ(bench.read(product.y), plain);
    EXPECT_THROW(KernelProfile(), Error) << "two at once";
  }
  EXPECT_EQ(table.linear_forward, unmeasured) << "it goes on measuring when it is over";
  bench.launch(&KernelTable::add, Add{sum, product.y, product.y});
  EXPECT_EQ(bench.read(sum)[3], plain[3] + plain[3]);
  const KernelTotals& products = totals_of(totals, "linear_forward");
  EXPECT_EQ(products.calls, 3);
  EXPECT_GT(products.seconds, 0);
  EXPECT_EQ(products.work.flop, 3 * 2.0 * 5 * 20 * 7);
  EXPECT_EQ(products.work.bytes, 3 * 4.0 * (5 * 7 + 5 * 20 + 2 * 16 * 7));
  EXPECT_EQ(totals_of(totals, "add").calls, 1);
  EXPECT_EQ(totals_of(totals, "add").work.flop, 5 * 20);
  std::int64_t calls = 0;
  for (const KernelTotals& one : totals) calls += one.calls;
  EXPECT_EQ(calls, 4);
  const KernelProfile next;
  for (const KernelTotals& one : next.totals()) EXPECT_EQ(one.calls, 0) << one.name << ": a profile begins with what another measured";
}

// What was in the table stays in use, and is there again afterwards.
TEST(KernelProfile, MeasuresTheKernelThatIsInTheTable) {
  KernelBench bench({.threads = 1});
  const View a = bench.floats({1, 2}, 1, 2), y = bench.junk(1, 2);
  const PlantedKernel<Add> planted(&KernelTable::add, [](const Add& op, ThreadPool& pool) { PlantedKernel<Add>::right({op.y, op.y, op.b}, pool); });
  {
    const KernelProfile profile;
    bench.launch(&KernelTable::add, Add{y, a, a});
    EXPECT_EQ(bench.read(y), (std::vector<float>{12346, 12347}));
  }
  bench.launch(&KernelTable::add, Add{y, a, a});
  EXPECT_EQ(bench.read(y), (std::vector<float>{12347, 12349}));
}

// Of a deferred stream kernels run on another thread, when their turn comes.
TEST(KernelProfile, MeasuresQueuedKernelsWhereTheyRun) {
  KernelBench bench({.kind = BackendKind::deferred, .threads = 1});
  const ProfiledProduct product(bench);
  bench.backend().stream().synchronize();
  const KernelProfile profile;
  bench.launch(&KernelTable::linear_forward, product.forward());
  bench.backend().stream().synchronize();
  EXPECT_EQ(totals_of(profile.totals(), "linear_forward").work.flop, product_flop(kRows, kOutputs * kInputs));
}

// Experts: the rows that each one has say the work, and a matrix without rows is not read.
TEST(KernelWork, OfExpertsIsThatOfTheirRows) {
  KernelBench bench({.threads = 1});
  PackedWeight w;
  w.outputs = 16;
  w.inputs = 4;
  w.count = 3;
  w.data = bench.floats(std::vector<float>(static_cast<std::size_t>(3 * w.packed_size()), 1.0f), 1, 3 * w.packed_size());
  const View offsets = bench.ints({0, 2, 2, 7}, 4), x = bench.zeros(9, 4), y = bench.zeros(9, 16);
  const LinearForward all{.y = y, .x = x, .w = w, .offsets = offsets};
  EXPECT_EQ(work_of(all).flop, 2.0 * 7 * 16 * 4);
  EXPECT_EQ(work_of(all).bytes, 4.0 * (7 * 4 + 7 * 16 + 2 * 16 * 4));
  LinearForward some = all;
  some.ends = bench.ints({1, 2, 4}, 3);  // one row of the first, two of the last
  EXPECT_EQ(work_of(some).flop, 2.0 * 3 * 16 * 4);
  // Heads: each has all rows.
  const LinearForward heads{.y = bench.zeros(5, 48), .x = bench.zeros(5, 12), .w = w, .x_step = 4, .y_step = 16};
  EXPECT_EQ(work_of(heads).flop, 2.0 * 3 * 5 * 16 * 4);
}

// A norm of a sum: the sum's addition beside the norm's own 4 a value, and its operands read and results written once.
TEST(KernelWork, OfANormCountsTheSumThatItMakes) {
  KernelBench bench({.threads = 1});
  RmsNormForward norm;
  norm.x = bench.zeros(5, 20), norm.y = bench.zeros(5, 20), norm.w = bench.zeros(1, 20);
  EXPECT_EQ(work_of(norm).flop, 4 * 5 * 20);
  EXPECT_EQ(work_of(norm).bytes, 4.0 * (2 * 5 * 20 + 20));
  norm.addend = bench.zeros(5, 20), norm.sum = bench.zeros(5, 20);
  EXPECT_EQ(work_of(norm).flop, 5 * 5 * 20);
  EXPECT_EQ(work_of(norm).bytes, 4.0 * (4 * 5 * 20 + 20));
  RmsNormBackward back;
  back.x = norm.x, back.dy = norm.y, back.w = norm.w, back.dx = norm.sum;
  EXPECT_EQ(work_of(back).flop, 11 * 5 * 20);
  EXPECT_EQ(work_of(back).bytes, 4.0 * (3 * 5 * 20 + 20));
  back.onto = norm.addend;
  EXPECT_EQ(work_of(back).flop, 12 * 5 * 20);
  EXPECT_EQ(work_of(back).bytes, 4.0 * (4 * 5 * 20 + 20));
}

// The pairs that the work is of are those that attention counts where it scores them.
TEST(KernelWork, OfAttentionIsThePairsThatItReads) {
  for (const std::int64_t window : {0, 5})
    for (const bool selects : {false, true}) {
      if (selects && window > 0) continue;
      KernelBench bench({.threads = 2});
      const PagedRows paged({{20, 0}, {3, 70}, {1, 9}}, 4);
      AttentionShape shape{.heads = 4, .kv_heads = 2, .key = 6, .value = 3, .scale = 0.5f, .window = window};
      if (selects) shape.kv_heads = 1;
      const std::int64_t rows = paged.rows();
      std::vector<std::int32_t> count;
      const std::vector<std::int32_t> selection = paged.random_selection(7, count);
      AttentionForward op;
      op.o = bench.junk(rows, shape.heads * shape.value);
      op.log_sum = bench.junk(rows, shape.heads);
      op.q = bench.floats(random_floats(rows * shape.heads * shape.key, 3), rows, shape.heads * shape.key);
      op.cache = bench.floats(random_floats(paged.slots() * shape.entry(), 4), paged.slots(), shape.entry());
      if (selects) op.selection = bench.ints(selection, rows, 7), op.count = bench.ints(count, rows);
      op.rows = paged.view(bench);
      op.shape = shape;
      op.keys_read = bench.ints(std::vector<std::int32_t>(static_cast<std::size_t>(rows * shape.heads), 0), rows, shape.heads);
      bench.launch(&KernelTable::attention_forward, op);
      const std::vector<std::int32_t> read = bench.read_ints(op.keys_read);
      const double pairs = std::accumulate(read.begin(), read.end(), 0.0);
      EXPECT_GT(pairs, 0);
      EXPECT_EQ(work_of(op).flop, attention_flop(pairs, 6, 3)) << window << (selects ? ", a selection" : "");
      AttentionBackward back;
      back.q = op.q, back.cache = op.cache, back.selection = op.selection, back.count = op.count, back.rows = op.rows, back.shape = shape;
      EXPECT_EQ(work_of(back).flop, pairs * (6 * 6 + 4 * 3));
    }
}

// Every kernel is a span of a trace, inside what launched it.
TEST(KernelProfile, KernelsAreSpansOfATrace) {
  KernelBench bench({.threads = 1});
  const ProfiledProduct product(bench);
  begin_trace();
  {
    const KernelProfile profile;
    const TraceSpan span("test", "outer");
    bench.launch(&KernelTable::linear_forward, product.forward());
  }
  const TraceRecording recording = end_trace();
  ASSERT_EQ(recording.events.size(), 2u);
  const TraceEvent &kernel = recording.events[0], &outer = recording.events[1];
  EXPECT_STREQ(kernel.name, "linear_forward");
  EXPECT_EQ(kernel.thread, outer.thread);
  EXPECT_LE(outer.begin, kernel.begin);
  EXPECT_LE(kernel.begin + kernel.length, outer.begin + outer.length);
}

}  // namespace
}  // namespace lockstep
