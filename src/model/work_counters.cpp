#include "model/work_counters.h"

#include <future>
#include <utility>

namespace lockstep {

View WorkCounters::cells(std::vector<Buffer>& of, std::int64_t rows, std::int64_t cols) {
  if (!counts_ || reads_rows_) return {};
  for (const Buffer& b : of)
    if (b.view().rows == rows && b.view().cols == cols) return b.view();
  of.push_back(backend_.device().allocate_zero(DType::i32, rows, cols, MemoryCategory::activations));
  return of.back().view();
}

ForwardCounts WorkCounters::read() {
  ForwardCounts counts;
  counts.segment_rows = segment_rows_;
  std::vector<std::pair<std::int64_t*, std::future<std::vector<std::int32_t>>>> reads;  // all reads are issued before the first is awaited
  for (const Buffer& b : keys_read_) reads.emplace_back(&counts.pairs_read, backend_.stream().read_ints(b.view()));
  for (const Buffer& b : expert_rows_) reads.emplace_back(&counts.expert_rows, backend_.stream().read_ints(b.view()));
  for (auto& [sum, read] : reads)
    for (const std::int32_t n : read.get()) *sum += n;
  return counts;
}

}  // namespace lockstep
