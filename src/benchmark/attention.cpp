#include "benchmark/attention.h"

#include <cmath>
#include <numeric>

#include "benchmark/noise.h"
#include "kernels/launch.h"
#include "numerics/flop.h"

namespace lockstep {

AttentionTiming time_attention(const AttentionCase& c, const BackendOptions& machine, const TimeBudget& budget) {
  Backend backend(machine);
  Device& device = backend.device();
  AttentionShape shape{.heads = c.heads, .kv_heads = c.kv_heads, .key = c.size, .value = c.size};
  shape.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.size)));
  constexpr std::int32_t kPage = 16;
  const std::int64_t pages = (c.context + kPage - 1) / kPage;
  const auto column = [&](std::vector<std::int32_t> values) {
    return device.upload(values, static_cast<std::int64_t>(values.size()), 1, MemoryCategory::activations);
  };
  std::vector<std::int32_t> positions(static_cast<std::size_t>(c.rows)), table(static_cast<std::size_t>(1 + pages));
  std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(c.context - c.rows));
  table[0] = 1;
  std::iota(table.begin() + 1, table.end(), 0);
  const Buffer position = column(positions), sequence = column(std::vector<std::int32_t>(static_cast<std::size_t>(c.rows), 0)), page_table = column(table);
  Rows rows;
  rows.position = position.view();
  rows.sequence = sequence.view();
  rows.page_table = page_table.view();
  rows.page_size = kPage;
  rows.longest = pages * kPage;
  const Buffer q = device.upload(noise(c.rows * c.heads * c.size, 1), c.rows, c.heads * c.size, MemoryCategory::activations);
  const Buffer cache =
      device.upload(noise(pages * kPage * shape.entry(), 2), pages * kPage, shape.entry(), MemoryCategory::cache, c.bf16_cache ? DType::bf16 : DType::f32);
  const Buffer o = device.allocate(DType::f32, c.rows, c.heads * c.size, MemoryCategory::activations);
  const Buffer log_sum = device.allocate(DType::f32, c.rows, c.heads, MemoryCategory::activations);
  AttentionTiming result;
  result.time = time_repeated(budget, [&] {
    backend.launch(&KernelTable::attention_forward, AttentionForward{o.view(), log_sum.view(), q.view(), cache.view(), {}, {}, rows, shape});
  });
  double pairs = 0;
  for (const std::int32_t p : positions) pairs += p + 1;
  const auto size = static_cast<double>(c.size);
  result.gigaflops = attention_flop(pairs * static_cast<double>(c.heads), size, size) / result.time.median / 1e9;
  result.gigabytes_per_second = static_cast<double>(c.context * shape.entry() * (c.bf16_cache ? 2 : 4)) / result.time.median / 1e9;
  return result;
}

}  // namespace lockstep
