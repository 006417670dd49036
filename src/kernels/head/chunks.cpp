#include "kernels/head/chunks.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {

std::vector<HeadChunk> head_chunks(const std::int32_t* segment, std::int64_t rows, std::int64_t capacity) {
  if (rows == 0) return {{0, 0}};
  std::vector<HeadChunk> chunks;
  for (std::int64_t begin = 0; begin < rows;) {
    std::int64_t end = std::min(rows, begin + std::max<std::int64_t>(capacity, 0));
    if (segment && end < rows)
      while (end > begin && segment[end] == segment[end - 1]) --end;
    if (end == begin)
      fail(ErrorCode::internal, "the head's logits chunk has {} rows, the segment that begins at row {} of {} needs more", capacity, begin,
           rows);
    chunks.push_back({begin, end});
    begin = end;
  }
  return chunks;
}

}  // namespace lockstep
