#include "model/rope_rows.h"

#include <algorithm>

namespace lockstep {

RopeRows::RopeRows(Device& device, const RopeSpec& spec, std::int64_t most) : device_(&device), spec_(spec), most_(most) {
  if (spec.rotary > 0) make(std::min(most, kFirst));
}

void RopeRows::make(std::int64_t rows) { tables_.push_back(device_->upload(rope_table(rows, spec_), rows, spec_.rotary, MemoryCategory::weights)); }

View RopeRows::up_to(std::int64_t positions) {
  if (tables_.empty()) return {};
  std::int64_t rows = tables_.back().view().rows;
  while (rows < std::min(positions, most_)) rows = std::min(rows * kGrowth, most_);
  if (rows > tables_.back().view().rows) make(rows);
  return tables_.back().view();
}

}  // namespace lockstep
