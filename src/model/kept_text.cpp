#include "model/kept_text.h"

#include <algorithm>
#include <utility>

namespace lockstep {

// Enters the page that is still open, so that others may read it. Full pages were entered before.
void KeptText::close() {
  if (!lost_ && open_.rows && !open_.tokens.empty()) forwards_->enter(before_, std::move(open_.tokens), std::move(open_.rows));
  open_ = {};
  next_.clear();
}

bool KeptText::copy_beginning(std::span<const std::int32_t> tokens, std::int64_t position) {
  std::vector<KeptForwards::Piece> found;
  if (!forwards_->find(root_, tokens, open_.begin, position, found)) return false;
  open_.rows = forwards_->allocate();
  if (!open_.rows) return false;
  Stream& stream = forwards_->backend().stream();
  for (std::int64_t value = 0; value < forwards_->layout().values(); ++value)
    stream.copy(forwards_->layout().of_value(open_.rows->view(), value).row_range(0, found[0].count),
                forwards_->layout().of_value(found[0].rows->view(), value).row_range(found[0].first, found[0].count));
  const auto own = tokens.subspan(static_cast<std::size_t>(open_.begin), static_cast<std::size_t>(position - open_.begin));
  open_.tokens.assign(own.begin(), own.end());
  return true;
}

// Opens the page of a position, with the rows that are already in it.
void KeptText::go_to(std::span<const std::int32_t> tokens, std::int64_t position) {
  next_.clear();  // of a forward that failed
  const std::int64_t size = forwards_->layout().positions(), begin = position - position % size;
  if (begun_ && !lost_ && open_.begin == begin) {
    const auto before = static_cast<std::size_t>(position - begin);
    if (open_.tokens.size() < before) lost_ = true;
    else open_.tokens.resize(before);
    if (before == 0 && !open_.rows) open_.rows = forwards_->allocate();
    lost_ = lost_ || !open_.rows;
    return;
  }
  if (begun_ && lost_ && open_.begin <= begin) return;  // it goes on behind what is lost
  close();
  begun_ = true;
  open_.begin = begin;
  before_ = forwards_->place(root_, tokens.first(static_cast<std::size_t>(begin)));
  if (position > begin) {
    lost_ = !copy_beginning(tokens, position);
    return;
  }
  open_.rows = forwards_->allocate();
  lost_ = !open_.rows;
}

std::vector<KeptText::Place> KeptText::places(std::span<const std::int32_t> tokens, std::int64_t begin, std::int64_t end) {
  go_to(tokens, begin);
  std::vector<Place> all;
  const std::int64_t size = forwards_->layout().positions();
  for (std::int64_t position = begin; position < end && !lost_;) {
    Open& page = next_.empty() ? open_ : next_.back();
    if (position == page.begin + size) {
      next_.push_back({position, {}, forwards_->allocate()});
      lost_ = !next_.back().rows;
      continue;
    }
    const std::int64_t count = std::min(end, page.begin + size) - position;
    all.push_back({page.rows, position - begin, position - page.begin, count});
    position += count;
  }
  const std::int64_t placed = all.empty() ? 0 : all.back().from + all.back().count;
  forwards_->statistics().dropped += end - begin - placed;
  return all;
}

void KeptText::enter(std::span<const std::int32_t> tokens, std::int64_t begin, std::int64_t end) {
  const std::int64_t size = forwards_->layout().positions();
  const auto add = [&](Open& page) {
    const std::int64_t from = std::max(begin, page.begin), to = std::min(end, page.begin + size);
    if (!page.rows || from >= to) return;
    const auto own = tokens.subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(to - from));
    page.tokens.insert(page.tokens.end(), own.begin(), own.end());
  };
  const auto full = [&] { return static_cast<std::int64_t>(open_.tokens.size()) == size; };
  add(open_);
  for (Open& page : next_) {
    if (!full()) break;
    before_ = forwards_->enter(before_, std::move(open_.tokens), std::move(open_.rows));
    open_ = std::move(page);
    add(open_);
  }
  next_.clear();
  if (full()) {
    before_ = forwards_->enter(before_, std::move(open_.tokens), std::move(open_.rows));
    open_ = {open_.begin + size, {}, nullptr};
  }
  lost_ = lost_ || before_ == KeptForwards::kNowhere;
}

}  // namespace lockstep
