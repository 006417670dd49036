// The free pages of the cache, and the number of users of each of the others. Does not know what pages hold. Used by one thread at a time.
//   std::int32_t page = pages.allocate(); pages.retain(page); pages.release(page);
#pragma once
#include <cstdint>
#include <vector>

namespace lockstep {

class PageAllocator {
 public:
  explicit PageAllocator(std::int64_t pages);
  std::int32_t allocate();  // a page with one user; -1 when none is free
  void retain(std::int32_t page);
  std::int32_t release(std::int32_t page);  // users left; at 0 the page is free
  std::int32_t users(std::int32_t page) const { return users_[static_cast<std::size_t>(page)]; }
  std::int64_t total() const { return static_cast<std::int64_t>(users_.size()); }
  std::int64_t free_pages() const { return static_cast<std::int64_t>(free_.size()); }

 private:
  std::vector<std::int32_t> users_;
  std::vector<std::int32_t> free_;  // the last goes out first
};

}  // namespace lockstep
