#include "tensor/copies.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/give_way.h"
#include "tensor/device_pointer.h"

namespace lockstep {

namespace {
// What one thread copies at a time. Smaller work is not worth a second thread.
constexpr std::int64_t kBytesATurn = 32 << 10;

void copy_piece(const Copied& piece) {
  const auto* from = device_pointer<const unsigned char>(piece.from);
  auto* to = device_pointer<unsigned char>(piece.to);
  const std::int64_t bytes = piece.to.cols * piece.to.element_bytes;
  if (piece.to.stride == piece.to.cols && piece.from.stride == piece.from.cols) {
    std::memcpy(to, from, static_cast<std::size_t>(piece.to.rows * bytes));
    return;
  }
  for (std::int64_t r = 0; r < piece.to.rows; ++r)
    std::memcpy(to + r * piece.to.stride * piece.to.element_bytes, from + r * piece.from.stride * piece.to.element_bytes, static_cast<std::size_t>(bytes));
}
}  // namespace

void copy_all(Device& device, const std::vector<Copied>& pieces) {
  for (const auto& [to, from] : pieces)
    if (to.rows != from.rows || to.cols != from.cols || to.element_bytes != from.element_bytes)
      fail(ErrorCode::internal, "a copy of {} x {} meets a view of {} x {}", from.rows, from.cols, to.rows, to.cols);
  if (device.kind() != BackendKind::cpu) {  // queued work runs on one thread
    for (const Copied& piece : pieces) device.stream().copy(piece.to, piece.from);
    return;
  }
  // Turns of neighbouring pieces; after some of them the thread gives way.
  std::vector<std::size_t> ends;
  for (std::size_t begin = 0; begin < pieces.size(); begin = ends.back()) {
    ends.clear();
    std::int64_t bytes = 0, of_turn = 0;
    for (std::size_t i = begin; i < pieces.size() && bytes < device.threads().threads() * static_cast<std::int64_t>(kBlockToGiveWay); ++i) {
      const std::int64_t size = pieces[i].to.size() * pieces[i].to.element_bytes;
      if (ends.empty() || of_turn + size > kBytesATurn) ends.push_back(i), of_turn = 0;
      bytes += size, of_turn += size;
      ends.back() = i + 1;
    }
    device.threads().run(static_cast<std::int64_t>(ends.size()), [&](std::int64_t turn) {
      for (std::size_t i = turn == 0 ? begin : ends[static_cast<std::size_t>(turn) - 1]; i < ends[static_cast<std::size_t>(turn)]; ++i) copy_piece(pieces[i]);
    });
    give_way();
  }
}

}  // namespace lockstep
