// Which tokens a row keeps, and its temperature (row_distribution.h). Included by head.inl and head.cu; every function is a template over V.
#pragma once
#include "kernels/elements.h"
#include "kernels/head/row_distribution.h"

namespace lockstep {

// The tokens that a row keeps.
struct KeptRow {
  const std::int32_t* words = nullptr;  // null: all
  std::int64_t count = 0;
  bool bitmap = false, by_rank = false;
  LOCKSTEP_EVERYWHERE explicit operator bool() const { return words != nullptr; }
};
template <class V>
LOCKSTEP_EVERYWHERE inline KeptRow kept_row(const RowDistribution& of, std::int64_t t) {
  if (!of.kept) return {};
  const std::int32_t* row = ints(of.kept) + t * of.kept.stride;
  if (row[0] == 0) return {};
  return {ints(of.kept_words) + row[1], row[2], row[2] > (of.vocabulary + 31) / 32, row[0] == 2};
}
template <class V>
LOCKSTEP_EVERYWHERE inline float row_temperature(const RowDistribution& of, std::int64_t t) {
  return of.temperature ? value_of(elements<V>(of.temperature)[t * of.temperature.stride]) : 1.0f;
}

// The first of `count` ascending ids that is not below `id`.
template <class V>
LOCKSTEP_EVERYWHERE inline std::int64_t first_id(const std::int32_t* ids, std::int64_t count, std::int64_t id) {
  std::int64_t at = 0;
  for (std::int64_t end = count; at < end;) {
    const std::int64_t middle = at + (end - at) / 2;
    if (ids[middle] < id) at = middle + 1;
    else end = middle;
  }
  return at;
}
template <class V>
LOCKSTEP_EVERYWHERE inline bool keeps(const KeptRow& row, std::int64_t id) {
  if (row.bitmap) return (static_cast<std::uint32_t>(row.words[id / 32]) >> (id % 32) & 1u) != 0;
  const std::int64_t at = first_id<V>(row.words, row.count, id);
  return at < row.count && row.words[at] == id;
}

}  // namespace lockstep
