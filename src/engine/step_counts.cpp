#include "engine/step_counts.h"

#include <algorithm>

namespace lockstep {

void count_plan(const std::vector<PlannedSlice>& plan, EngineCounters& counters) {
  std::int64_t rows = 0, decode_rows = 0;
  for (const PlannedSlice& p : plan) {
    if (p.read) continue;
    rows += p.count;
    (is_live(*p.sequence) ? counters.live_rows : counters.other_rows) += p.count;
    if (p.decode) decode_rows += p.count;
    else if (p.begin > p.sequence->begin || !p.last) ++counters.chunks;
  }
  counters.forwards += rows > 0;
  counters.rows += rows;
  counters.largest_batch = std::max(counters.largest_batch, rows);
  counters.decode_tokens += decode_rows;
  counters.prefill_tokens += rows - decode_rows;
  counters.mixed_batches += decode_rows > 0 && decode_rows < rows;
}

void count_forward(const std::vector<PlannedSlice>& plan, const Model& model, const ForwardCounts& work, EngineCounters& counters) {
  counters.own_weights_forwards += plan[0].sequence->weights != nullptr;
  counters.work += work;
  const AdapterWeights* adapter = nullptr;
  std::int64_t adapters = 0;
  for (const PlannedSlice& p : plan) {
    counters.work.expect(model, p.begin, p.begin + p.count);
    if (!p.sequence->adapter) continue;
    counters.adapter_rows += p.count;
    adapters += p.sequence->adapter.get() != adapter;
    adapter = p.sequence->adapter.get();
  }
  counters.most_adapters = std::max(counters.most_adapters, adapters);
}

void count_accounts(const std::vector<PlannedSlice>& plan, std::vector<AccountRows>& rows) {
  for (const PlannedSlice& p : plan) {
    const auto known = std::find_if(rows.begin(), rows.end(), [&](const AccountRows& one) { return one.account == p.sequence->account; });
    if (known != rows.end()) known->rows += p.count;
    else rows.push_back({p.sequence->account, p.count});
  }
}

}  // namespace lockstep
