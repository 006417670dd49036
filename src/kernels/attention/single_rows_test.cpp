// Blocks of a decoding row's keys are shared out to threads, and each waits for the running maxima of the one before it.
#include "kernels/attention/attention.h"
#include "kernels/cache/paged_rows_test_tools.h"
#include "kernels/launch.h"

namespace lockstep {
namespace {

// More threads than processors, so that one is often put aside in the middle of a block; two rows in turns, so that what the other has left in the
// same place is not what is waited for.
TEST(SingleRows, ABlockWaitsForTheMaximaBeforeIt) {
  AttentionShape shape{.heads = 3, .kv_heads = 1, .key = 16, .value = 16};
  KernelBench alone({.kind = BackendKind::cpu, .isa = {}, .threads = 1}), many({.kind = BackendKind::cpu, .isa = {}, .threads = 16});
  std::vector<AttentionForward> ops;
  std::vector<std::vector<std::uint64_t>> want;
  for (const int keys : {900, 1000}) {
    const PagedRows rows({{1, keys - 1}}, 16);
    const std::vector<float> q = random_floats(3 * 16, keys, -3, 3), cache = random_floats(std::int64_t{rows.slots()} * 32, 2);
    const auto op_of = [&](KernelBench& b) {
      return AttentionForward{b.junk(1, 3 * 16), b.junk(1, 3), b.floats(q, 1, 3 * 16), b.floats(cache, rows.slots(), 32), {}, {}, rows.view(b), shape};
    };
    const AttentionForward one = op_of(alone);
    alone.launch(&KernelTable::attention_forward, one);
    want.push_back(words_of(alone.read(one.o)));
    ops.push_back(op_of(many));
  }
  for (int i = 0; i < 3000; ++i) {
    const auto which = static_cast<std::size_t>(i % 2);
    many.launch(&KernelTable::attention_forward, ops[which]);
    ASSERT_EQ(words_of(many.read(ops[which].o)), want[which]) << "forward " << i;
  }
}

}  // namespace
}  // namespace lockstep
