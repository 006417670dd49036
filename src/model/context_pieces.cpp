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
  for (const int slot : {0, 1}) {
    for (int rank = 0; rank < group.size(); ++rank) {
      const PositionRange& theirs = piece(number_of(slot, rank));
      for (std::int64_t p = theirs.begin; p < theirs.end; ++p) positions_.push_back(static_cast<std::int32_t>(p));
    }
    slot_begin_[static_cast<std::size_t>(slot) + 1] = std::ssize(positions_);
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

void ContextPieces::gather(Stream& stream, int slot, const View& mine, const View& all) const {
  const std::vector<View> to(static_cast<std::size_t>(group_.size()), mine.row_range(first_row(slot), piece(own(slot)).size()));
  std::vector<View> from;
  std::int64_t begin = 0;
  for (int rank = 0; rank < group_.size(); ++rank) {
    const std::int64_t size = piece(number_of(slot, rank)).size();
    from.push_back(all.row_range(begin, size));
    begin += size;
  }
  group_.exchange(stream, to, from);
}

Rows ContextPieces::rows_of(int slot) const {
  const std::int64_t begin = slot_begin(slot), count = slot_begin(slot + 1) - begin;
  Rows rows = all_rows_;
  rows.position = rows.position.row_range(begin, count);
  rows.sequence = rows.sequence.row_range(begin, count);
  return rows;
}

void ContextPieces::gather(Stream& stream, const View& mine, const View& all) const {
  for (const int slot : {0, 1}) gather(stream, slot, mine, all.row_range(slot_begin(slot), slot_begin(slot + 1) - slot_begin(slot)));
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
