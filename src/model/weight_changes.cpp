#include "model/weight_changes.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "kernels/launch.h"
#include "model/piece_elements.h"
#include "model/sharding.h"

namespace lockstep {

namespace {
constexpr std::int64_t kWindow = std::int64_t{1} << 30;     // offsets of a block fit into 31 bits
constexpr std::size_t kMostOfBlock = std::size_t{1} << 20;  // changes that are on the device at once

void check_positions(const FileTensor& file, std::span<const std::int64_t> positions) {
  std::int64_t least = 0;
  for (const std::int64_t position : positions) {
    if (position < least || position >= file.size())
      fail(ErrorCode::invalid_argument, "tensor '{}' of {} elements changes at {}; allowed are ascending positions from {} to {}", file.name, file.size(),
           position, least, file.size() - 1);
    least = position + 1;
  }
}
}  // namespace

void ParameterChanges::add(std::int64_t offset, std::uint32_t bits) {
  const std::int64_t first = offset / kWindow * kWindow;
  const auto has_room = [&](const Block& block) { return block.first == first && block.offsets.size() < kMostOfBlock; };
  if (open_ >= blocks_.size() || !has_room(blocks_[open_])) {
    const auto found = std::find_if(blocks_.begin(), blocks_.end(), has_room);
    open_ = static_cast<std::size_t>(found - blocks_.begin());
    if (found == blocks_.end()) blocks_.push_back({first, {}, {}});
  }
  blocks_[open_].offsets.push_back(static_cast<std::int32_t>(offset - first));
  blocks_[open_].bits.push_back(static_cast<std::int32_t>(bits));
}

std::int64_t ParameterChanges::count() const {
  std::int64_t count = 0;
  for (const Block& block : blocks_) count += std::ssize(block.offsets);
  return count;
}

std::int64_t WeightChanges::count() const {
  std::int64_t count = 0;
  for (const auto& [id, changes] : parameters) count += changes.count();
  return count;
}

void add_changes(const Manifest& manifest, const Profile& profile, const FileTensor& file, DType type, std::span<const std::int64_t> positions,
                 std::span<const std::uint32_t> bits, std::map<ParameterId, ParameterChanges>& to) {
  check_positions(file, positions);
  for (const Piece& piece : file.pieces)
    if (compute_dtype(manifest.parameter(piece.parameter), profile) == DType::u8)
      fail(ErrorCode::unsupported, "tensor '{}' is quantised under profile '{}': its elements have no places of their own", file.name, profile.name);
  const std::int64_t columns = file.columns();
  for (const Piece& piece : file.pieces) {
    const Parameter& p = manifest.parameter(piece.parameter);
    const DType own = compute_dtype(p, profile);
    const auto begin = std::lower_bound(positions.begin(), positions.end(), piece.row_begin * columns);
    const std::int64_t end = (piece.row_begin + piece.rows) * columns;
    ParameterChanges* changes = nullptr;
    for (auto at = begin; at != positions.end() && *at < end; ++at) {
      const std::int64_t row = *at / columns - piece.row_begin, column = *at % columns - piece.column_begin;
      if (column < 0 || column % piece.column_step != 0) continue;
      const std::int64_t k = column / piece.column_step;
      if (!changes) changes = &to[piece.parameter];
      changes->add(piece.transposed ? p.offset(piece.item, k, row) : p.offset(piece.item, row, k),
                   converted_bits(type, own, bits[static_cast<std::size_t>(at - positions.begin())]));
    }
  }
}

ParameterChanges share_of(const Manifest& whole, const Sharding& sharding, ParameterId id, const ParameterChanges& changes) {
  ParameterChanges share;
  if (!sharding.holds(id)) return share;
  const Parameter &p = whole.parameter(id), &own = sharding.manifest().parameter(id);
  if (p.split == ParameterSplit::whole) return changes;
  const ElementPlace corner = sharding.corner(id);
  changes.each([&](std::int64_t offset, std::uint32_t bits) {
    ElementPlace at = p.place(offset);
    at.item -= corner.item, at.output -= corner.output, at.input -= corner.input;
    if (at.item < 0 || at.item >= own.count || at.output < 0 || at.output >= own.outputs || at.input < 0 || at.input >= own.inputs) return;
    share.add(own.offset(at.item, at.output, at.input), bits);
  });
  return share;
}

void write_changes(Backend& backend, const Buffer& copy, const ParameterChanges& changes) {
  const View all = copy.view().reshape(1, copy.view().size());
  for (const ParameterChanges::Block& block : changes.blocks()) {
    const auto count = std::ssize(block.offsets);
    const Buffer offsets = backend.device().upload(block.offsets, count, 1, MemoryCategory::workspace);
    const Buffer bits = backend.device().upload(block.bits, count, 1, MemoryCategory::workspace);
    backend.launch(&KernelTable::set_elements, SetElements{all.column_range(block.first, all.cols - block.first), offsets.view(), bits.view()});
  }
}

ParameterBits read_bits(Backend& backend, const Buffer& copy) {
  const View& view = copy.view();
  const std::int64_t bytes = view.size() * view.element_bytes;
  ParameterBits bits{view.dtype, {}};
  if (bytes % 4 == 0) {
    bits.words = backend.stream().read_ints({view.address, DType::i32, 4, 1, bytes / 4, bytes / 4}).get();
    return bits;
  }
  const std::vector<std::uint8_t> all = backend.stream().read_bytes({view.address, DType::u8, 1, 1, bytes, bytes}).get();
  bits.words.resize((all.size() + 3) / 4);
  std::memcpy(bits.words.data(), all.data(), all.size());
  return bits;
}

}  // namespace lockstep
