#include "engine/page_allocator.h"

#include "base/error.h"

namespace lockstep {

PageAllocator::PageAllocator(std::int64_t pages) : users_(static_cast<std::size_t>(pages), 0), free_(static_cast<std::size_t>(pages)) {
  for (std::size_t i = 0; i < free_.size(); ++i) free_[i] = static_cast<std::int32_t>(free_.size() - 1 - i);
}

std::int32_t PageAllocator::allocate() {
  if (free_.empty()) return -1;
  const std::int32_t page = free_.back();
  free_.pop_back();
  users_[static_cast<std::size_t>(page)] = 1;
  return page;
}

void PageAllocator::retain(std::int32_t page) {
  if (users(page) < 1) fail(ErrorCode::internal, "page {} is free and cannot be shared", page);
  ++users_[static_cast<std::size_t>(page)];
}

std::int32_t PageAllocator::release(std::int32_t page) {
  if (users(page) < 1) fail(ErrorCode::internal, "page {} was released twice", page);
  const std::int32_t left = --users_[static_cast<std::size_t>(page)];
  if (left == 0) free_.push_back(page);
  return left;
}

}  // namespace lockstep
