// How the head cuts its rows into chunks: whole segments as they fit, so that a segment's gradient chain lies in one chunk.
// Plain host code; knows no vectors. Any thread.
//   for (auto [begin, end] : head_chunks(segment, rows, capacity)) ...
#pragma once
#include <cstdint>
#include <vector>

namespace lockstep {

struct HeadChunk {
  std::int64_t begin, end;  // rows
};

// Chunks of at most `capacity` rows that cover [0, rows) in order. `segment`: the rows' segments, equal ones together, none of
// which is cut; null: chunks of any rows. No rows: one empty chunk. Fails (internal) when a segment is longer than
// `capacity`, or capacity < 1 with rows to cut.
std::vector<HeadChunk> head_chunks(const std::int32_t* segment, std::int64_t rows, std::int64_t capacity);

}  // namespace lockstep
