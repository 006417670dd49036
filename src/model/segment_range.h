// The segments of a model's forward (model/operations/segment.h) that a stage of a pipeline computes. Plain values.
//   const SegmentRange own = segments_of_stage(7, 2, 0);  // [0, 4)
#pragma once
#include <algorithm>
#include <cstdint>

namespace lockstep {

struct SegmentRange {
  std::int64_t begin = 0, end = 0;
  bool holds(std::int64_t segment) const { return segment >= begin && segment < end; }
  bool operator==(const SegmentRange&) const = default;
};

// Stages that have segments: the first ones; the others do nothing.
inline int stages_at_work(std::int64_t segments, int stages) { return static_cast<int>(std::min<std::int64_t>(segments, stages)); }

// Of `segments`, dealt in order as evenly as they go, earlier stages first: the last one has the head, too.
inline SegmentRange segments_of_stage(std::int64_t segments, int stages, int stage) {
  const std::int64_t working = stages_at_work(segments, stages);
  const auto begin = [&](std::int64_t s) { return s >= working ? segments : (segments * s + working - 1) / working; };
  return {begin(stage), begin(stage + 1)};
}

}  // namespace lockstep
