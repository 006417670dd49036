#include "model/kept_compare.h"

#include <bit>

#include "base/error.h"

namespace lockstep {

namespace {
std::string describe(const KeptForwards& forwards, const KeptAndMade& row, std::int64_t value, std::int64_t column, float kept, float computed) {
  const std::string whose = row.sequence < 0 ? std::string("the prompt") : fmt::format("sequence {}", row.sequence);
  return fmt::format(
      "{}, position {}: what was kept of its forward is not what is computed now: {} {}, column {} is {} (bits {:#010x}), computed it is {} (bits "
      "{:#010x}), under the same weights; nothing was learned from it. Please report it; --keep-forward off computes all forwards",
      whose, row.position, forwards.row_values() == RowValues::segments ? "behind segment of layers" : "of operation", value, column, kept,
      std::bit_cast<std::uint32_t>(kept), computed, std::bit_cast<std::uint32_t>(computed));
}
}  // namespace

std::string kept_difference(Backend& backend, const KeptForwards& forwards, std::int64_t value, const std::vector<KeptAndMade>& rows) {
  if (rows.empty()) return {};
  const auto count = static_cast<std::int64_t>(rows.size()), width = forwards.layout().width(value);
  const Buffer pairs = backend.device().allocate(DType::f32, 2 * count, width, MemoryCategory::workspace);
  for (std::int64_t i = 0; i < count; ++i) {
    const KeptAndMade& row = rows[static_cast<std::size_t>(i)];
    backend.stream().copy(pairs.view().row_range(i, 1), row.kept);
    backend.stream().copy(pairs.view().row_range(count + i, 1), row.made);
  }
  const std::vector<float> values = backend.stream().read(pairs.view()).get();
  for (std::int64_t i = 0; i < count * width; ++i) {
    const float kept = values[static_cast<std::size_t>(i)], computed = values[static_cast<std::size_t>(count * width + i)];
    if (std::bit_cast<std::uint32_t>(kept) != std::bit_cast<std::uint32_t>(computed))
      return describe(forwards, rows[static_cast<std::size_t>(i / width)], value, i % width, kept, computed);
  }
  return {};
}

void compare_kept(Backend& backend, const KeptForwards& forwards, std::int64_t value, const std::vector<KeptAndMade>& rows) {
  if (const std::string difference = kept_difference(backend, forwards, value, rows); !difference.empty()) fail(ErrorCode::internal, "{}", difference);
}

}  // namespace lockstep
