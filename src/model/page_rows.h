// The memory of one page of model/kept_forwards.h, counted while it exists: in the statistics, and in the server's memory ledger where there is one.
//   auto rows = std::make_shared<const PageRows>(books, std::move(buffer), bytes); rows->view();
// Whoever holds a pointer may read the rows, also after KeptForwards has dropped the page. Any thread lets go of them.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "base/memory_ledger.h"
#include "tensor/device.h"

namespace lockstep {

struct KeptRowStatistics {
  std::atomic<std::int64_t> kept{0}, dropped{0};  // rows stored; rows not stored for lack of memory, or dropped for others
  std::atomic<std::int64_t> read{0}, beside{0};   // of forwards that read some: rows read, rows computed
  std::atomic<std::int64_t> compared{0};          // rows, each with all its values
  std::atomic<std::int64_t> bytes{0}, most{0};    // now; the most at any time
};

struct PageBooks {
  std::shared_ptr<KeptRowStatistics> statistics;
  std::optional<MemoryLedger::Claim> room;  // none: no ledger
  std::mutex mutex;                         // of what is claimed
  // Claims so many bytes more, or less. False: there is no room; less is always granted.
  bool claim_more(std::int64_t bytes) {
    const std::lock_guard lock(mutex);
    return !room || room->try_resize(room->bytes() + bytes);
  }
};

class PageRows {
 public:
  PageRows(std::shared_ptr<PageBooks> books, Buffer buffer, std::int64_t bytes);
  ~PageRows();
  PageRows(const PageRows&) = delete;
  PageRows& operator=(const PageRows&) = delete;
  const View& view() const { return buffer_.view(); }

 private:
  std::shared_ptr<PageBooks> books_;
  Buffer buffer_;
  std::int64_t bytes_;
};

}  // namespace lockstep
