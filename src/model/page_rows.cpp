#include "model/page_rows.h"

#include <algorithm>
#include <utility>

namespace lockstep {

PageRows::PageRows(std::shared_ptr<PageBooks> books, Buffer buffer, std::int64_t bytes) : books_(std::move(books)), buffer_(std::move(buffer)), bytes_(bytes) {
  const std::int64_t now = books_->statistics->bytes += bytes_;
  books_->statistics->most = std::max(books_->statistics->most.load(), now);
}

PageRows::~PageRows() {
  buffer_.reset();
  books_->statistics->bytes -= bytes_;
  books_->claim_more(-bytes_);
}

}  // namespace lockstep
