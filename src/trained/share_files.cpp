#include "trained/share_files.h"

#include <memory>
#include <mutex>
#include <utility>

#include "base/error.h"

namespace lockstep {

void ShareFiles::begin(const Each& each, const Ranks& ranks, const Manifest& manifest, const std::filesystem::path& folder) {
  writing_.clear();  // waits
  std::mutex mutex;
  each([&](StateShare& share) {
    const auto stream = std::make_shared<Stream>(share.backend());
    std::vector<SharePiece> pieces;
    for (const StateShare::Kept& kept : share.kept()) {
      const auto read = [stream, own = share.rows(kept)](std::int64_t first, std::int64_t rows) { return stream->read(own.rows.row_range(first, rows)).get(); };
      pieces.push_back({kept.part, manifest.parameter(kept.place.parameter), kept.place, read});
    }
    const auto write = [folder, rank = share.rank(), origin = ShareFileOrigin{ranks.layout().text(), share.steps()}, own = std::move(pieces)] {
      return with_context(fmt::format("writing the share of rank {}", rank), [&] { return write_share_file(folder, rank, origin, own); });
    };
    const std::lock_guard lock(mutex);
    writing_[share.rank()] = std::async(std::launch::async, write);
  });
}

void ShareFiles::wait() const {
  for (const auto& [rank, written] : writing_) written.wait();
}

std::vector<ShareFileEnd> ShareFiles::finish(Ranks& ranks) {
  if (writing_.empty()) fail(ErrorCode::internal, "no share of the state is being written");
  wait();  // here, and not where the ranks' seconds are counted
  std::map<int, std::future<ShareFileEnd>> writing = std::exchange(writing_, {});
  return ranks.gather<ShareFileEnd>([&](int local) { return writing.at(ranks.place(local).rank).get(); });
}

std::function<StateReader(StateShare&)> share_reader(const std::filesystem::path& folder, const Manifest& manifest, std::int64_t steps) {
  return [folder, &manifest, steps](StateShare& share) -> StateReader {
    struct Reading {
      ShareCheckpoint checkpoint;
      StateShare share;
      std::vector<float> image;
    };
    const auto reading = std::make_shared<Reading>(Reading{ShareCheckpoint(folder, manifest), share, {}});
    return [reading, steps](StatePart part, std::size_t i, bool own) -> const std::vector<float>& {
      const RowsPlace place = reading->share.place(i, own);
      if (steps == 0 && part != StatePart::master) reading->image.assign(static_cast<std::size_t>(place.share_size()), 0.0f);
      else reading->image = reading->checkpoint.read(part, place);
      return reading->image;
    };
  };
}

}  // namespace lockstep
