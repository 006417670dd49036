// The rows of a parameter that one data-parallel rank updates (ZeRO): only that rank holds their gradients, moments and masters. A row is a panel of
// a packed parameter, or a row of a table. Plain values.
//   const ParameterShare share = parameter_share(p, id, rank, ranks); View own = share.rows(buffer.view());
#pragma once
#include <vector>

#include "model/manifest.h"
#include "tensor/view.h"

namespace lockstep {

struct ParameterShare {
  std::int64_t width = 0;            // elements of a row
  std::vector<std::int64_t> bounds;  // rows [bounds[r], bounds[r + 1]) are rank r's
  int rank = 0;

  std::int64_t total() const { return bounds.back(); }
  std::int64_t begin() const { return bounds[static_cast<std::size_t>(rank)]; }
  std::int64_t count() const { return bounds[static_cast<std::size_t>(rank) + 1] - begin(); }
  // A view of the whole parameter (or of its accumulators), row by row; and a rank's rows of it.
  View by_row(const View& whole) const { return whole.reshape(total(), total() > 0 ? whole.size() / total() : 0); }
  View rows(const View& whole) const { return by_row(whole).row_range(begin(), count()); }
  View rows_of(const View& whole, int other) const {
    const auto at = static_cast<std::size_t>(other);
    return by_row(whole).row_range(bounds[at], bounds[at + 1] - bounds[at]);
  }
};

// The assignment is rotated by the id, so that parameters of a single row do not all fall to one rank.
inline ParameterShare parameter_share(const Parameter& p, ParameterId id, int rank, int ranks) {
  const bool packed = p.layout == ParameterLayout::packed;
  ParameterShare share{packed ? 16 * p.inputs : p.inputs, {}, rank};
  const std::int64_t rows = packed ? p.count * ((p.outputs + 15) / 16) : p.table_rows();
  for (int r = 0; r <= ranks; ++r) share.bounds.push_back((rows * r + id % ranks) / ranks);
  return share;
}

}  // namespace lockstep
