#include "model/context_pieces.h"

#include <cstdlib>
#include <map>

#include "numerics/form.h"

namespace lockstep {

namespace {
std::int64_t blocks_of(std::int64_t length) { return (length + kGradientBlock - 1) / kGradientBlock; }
}  // namespace

bool is_cut(std::int64_t length, int ranks) { return ranks > 1 && blocks_of(length) >= 2 * ranks; }

std::vector<PositionRange> pieces_of(std::int64_t length, int ranks) {
  const std::int64_t blocks = blocks_of(length), count = 2 * ranks;
  std::vector<PositionRange> pieces;
  for (std::int64_t i = 0; i < count; ++i) pieces.push_back({blocks * i / count * kGradientBlock, std::min(length, blocks * (i + 1) / count * kGradientBlock)});
  return pieces;
}

std::array<PositionRange, 2> pieces_of_rank(std::int64_t length, int ranks, int rank) {
  const std::vector<PositionRange> pieces = pieces_of(length, ranks);
  return {pieces[static_cast<std::size_t>(rank)], pieces[static_cast<std::size_t>(2 * ranks - 1 - rank)]};
}

ContextPieces::ContextPieces(Communicator& group, Backend& backend, std::int64_t length, const std::vector<std::int32_t>& pages, std::int64_t page_size)
    : group_(group), pieces_(pieces_of(length, group.size())) {
  rank_begin_.push_back(0);
  for (int rank = 0; rank < group.size(); ++rank) {
    for (const int number : {rank, last() - rank})
      for (std::int64_t p = piece(number).begin; p < piece(number).end; ++p) positions_.push_back(static_cast<std::int32_t>(p));
    rank_begin_.push_back(static_cast<std::int64_t>(positions_.size()));
  }
  const auto upload = [&](const std::vector<std::int32_t>& values, std::int64_t rows) {
    return backend.device().upload(values, rows, static_cast<std::int64_t>(values.size()) / rows, MemoryCategory::activations);
  };
  position_ = upload(positions_, length);
  sequence_ = upload(std::vector<std::int32_t>(positions_.size(), 0), length);
  page_table_ = upload(pages, 1);
  all_rows_.position = position_.view();
  all_rows_.sequence = sequence_.view();
  all_rows_.page_table = page_table_.view();
  all_rows_.page_size = static_cast<std::int32_t>(page_size);
  std::vector<std::int32_t> before;
  for (const PositionRange& range : pieces_) before.push_back(-static_cast<std::int32_t>(range.begin));
  key_begin_ = upload(before, std::ssize(before));
  first_ = upload({static_cast<std::int32_t>(piece(own(0)).begin), static_cast<std::int32_t>(piece(own(1)).begin)}, 2);
}

void ContextPieces::gather(Stream& stream, const View& mine, const View& all) const {
  std::vector<View> to(static_cast<std::size_t>(group_.size()), mine), from;
  for (std::size_t r = 0; r < to.size(); ++r) from.push_back(all.row_range(rank_begin_[r], rank_begin_[r + 1] - rank_begin_[r]));
  group_.exchange(stream, to, from);
}

KvCache one_layer_cache(Backend& backend, const std::vector<CacheShape>& shapes, const Profile& profile, std::int64_t pages, std::int64_t page_size) {
  KvCache cache(backend, {}, profile, pages, page_size);
  std::map<std::int64_t, Buffer> of_width;  // negative: of index keys, which are read beside the entries
  const auto buffer = [&](std::int64_t width) {
    Buffer& one = of_width[width];
    if (!one) one = backend.device().allocate_zero(profile.bf16_cache ? DType::bf16 : DType::f32, pages * page_size, std::abs(width), MemoryCategory::cache);
    return one;
  };
  for (const CacheShape& shape : shapes) cache.layers.push_back({buffer(shape.entry), shape.index_key > 0 ? buffer(-shape.index_key) : Buffer()});
  return cache;
}

}  // namespace lockstep
