#include "model/kept_forwards.h"

#include <algorithm>

#include "base/error.h"
#include "model/runtime.h"

namespace lockstep {

KeptForwards::KeptForwards(Runtime& runtime, RowValues values, const Settings& settings)
    : backend_(runtime.backend),
      what_(values),
      settings_(settings),
      layout_(row_widths(runtime, values), settings.page_positions),
      statistics_(std::make_shared<Statistics>()),
      books_(std::make_shared<PageBooks>()) {
  books_->statistics = statistics_;
  if (settings.verify_every < 0) fail(ErrorCode::invalid_argument, "verify_every is {}, allowed is 0 or more", settings.verify_every);
  if (settings.room) books_->room = settings.room->claim("kept forwards", {}, 0, "kept forwards");
}

KeptForwards::Page* KeptForwards::page(PageId id) {
  const auto found = pages_.find(id);
  return found == pages_.end() ? nullptr : &found->second;
}

KeptForwards::RowsPointer KeptForwards::allocate() {
  const std::int64_t bytes = layout_.page_bytes();
  if (bytes > settings_.most_bytes) return nullptr;
  const std::lock_guard lock(mutex_);
  while (statistics_->bytes + bytes > settings_.most_bytes || !books_->claim_more(bytes))
    if (!drop_idle()) return nullptr;
  try {
    Buffer buffer = backend_.device().allocate(DType::f32, bytes / std::int64_t{sizeof(float)}, 1, MemoryCategory::cache);
    return std::make_shared<const Rows>(books_, std::move(buffer), bytes);
  } catch (const Error& e) {
    books_->claim_more(-bytes);
    if (e.code() != ErrorCode::resource_exhausted) throw;
    return nullptr;
  }
}

bool KeptForwards::drop_one() {
  const std::lock_guard lock(mutex_);
  return drop_idle();
}

bool KeptForwards::drop_idle() {
  const auto unread = std::find_if(idle_.begin(), idle_.end(), [this](const auto& entry) { return pages_.at(entry.second).rows.use_count() == 1; });
  if (unread == idle_.end()) return false;
  const PageId id = unread->second;
  Page& page = pages_.at(id);
  statistics_->dropped += static_cast<std::int64_t>(page.tokens.size());
  take_rows(id, page);
  prune(id);
  return true;
}

// Removes pages without rows that lead to no other page. A text that is being stored behind one notices that its page is gone, and stops.
void KeptForwards::prune(PageId id) {
  for (const Page* at = page(id); at && !at->rows && at->behind.empty() && at->before != kNowhere; at = page(id)) {
    const PageId before = at->before;
    remove(id);
    id = before;
  }
}

void KeptForwards::take_rows(PageId id, Page& page) {
  idle_.erase({page.last_use, id});
  page.rows = nullptr;
  Page* before = this->page(page.before);
  if (!before) return;
  --before->kept_behind;
  if (may_go(*before)) idle_.insert({before->last_use, page.before});
}

void KeptForwards::set_rows(PageId id, RowsPointer rows) {
  Page& page = pages_.at(id);
  statistics_->kept += static_cast<std::int64_t>(page.tokens.size());
  page.rows = std::move(rows);
  if (Page* before = this->page(page.before)) {
    ++before->kept_behind;
    idle_.erase({before->last_use, page.before});
  }
  if (may_go(page)) idle_.insert({page.last_use, id});
}

void KeptForwards::touch(PageId id, Page& page) {
  const bool idle = idle_.erase({page.last_use, id}) > 0;
  page.last_use = ++clock_;
  if (idle) idle_.insert({page.last_use, id});
}

// In lexicographic order, all pages that begin with `tokens` are adjacent; the first is lower_bound(tokens).
KeptForwards::PageId KeptForwards::behind(const Page& at, const std::vector<std::int32_t>& tokens) const {
  PageId first = kNowhere;
  for (auto next = at.behind.lower_bound(tokens); next != at.behind.end(); ++next) {
    if (next->first.size() < tokens.size() || !std::equal(tokens.begin(), tokens.end(), next->first.begin())) break;
    if (pages_.at(next->second).rows) return next->second;
    if (first == kNowhere) first = next->second;
  }
  return first;
}

KeptForwards::PageId KeptForwards::add(PageId before, std::vector<std::int32_t> tokens) {
  const PageId id = next_id_++;
  if (Page* page = this->page(before)) page->behind.emplace(tokens, id);
  Page& added = pages_[id];
  added.before = before;
  added.tokens = std::move(tokens);
  added.last_use = ++clock_;
  return id;
}

void KeptForwards::remove(PageId id) {
  const auto found = pages_.find(id);
  const std::map<std::vector<std::int32_t>, PageId> behind = std::move(found->second.behind);
  found->second.behind.clear();
  for (const auto& [tokens, child] : behind) remove(child);
  if (found->second.rows) take_rows(id, found->second);
  if (Page* before = page(found->second.before)) before->behind.erase(found->second.tokens);
  pages_.erase(id);
}

KeptForwards::PageId KeptForwards::place(const Root& root, std::span<const std::int32_t> tokens) {
  const std::lock_guard lock(mutex_);
  const auto [known, fresh] = roots_.try_emplace(root, kNowhere);
  if (fresh) known->second = add(kNowhere, {});
  PageId at = known->second;
  const auto size = static_cast<std::size_t>(layout_.positions());
  for (std::size_t begin = 0; begin + size <= tokens.size(); begin += size) {
    const std::span<const std::int32_t> own = tokens.subspan(begin, size);
    std::vector<std::int32_t> key(own.begin(), own.end());
    const PageId next = behind(pages_.at(at), key);
    at = next != kNowhere ? next : add(at, std::move(key));
  }
  return at;
}

KeptForwards::PageId KeptForwards::enter(PageId before, std::vector<std::int32_t> tokens, RowsPointer rows) {
  const std::lock_guard lock(mutex_);
  Page* at = page(before);
  if (!at || tokens.empty()) {
    if (rows) statistics_->dropped += static_cast<std::int64_t>(tokens.size());
    return kNowhere;
  }
  PageId id = behind(*at, tokens);
  const bool longer = id != kNowhere && pages_.at(id).tokens.size() > tokens.size();
  if (longer && pages_.at(id).rows) {
    touch(id, pages_.at(id));
    return id;
  }
  if (id == kNowhere || longer) {
    // What this page begins with as well is in it from now on.
    for (auto shorter = at->behind.lower_bound(tokens); shorter != at->behind.begin();) {
      --shorter;
      if (shorter->first.size() >= tokens.size() || !std::equal(shorter->first.begin(), shorter->first.end(), tokens.begin())) break;
      const PageId part = shorter->second;
      shorter = at->behind.upper_bound(shorter->first);
      remove(part);
    }
    id = add(before, std::move(tokens));
  }
  Page& own = pages_.at(id);
  touch(id, own);
  if (!own.rows && rows) set_rows(id, std::move(rows));
  return id;
}

bool KeptForwards::find(const Root& root, std::span<const std::int32_t> tokens, std::int64_t begin, std::int64_t end, std::vector<Piece>& pieces) {
  const std::lock_guard lock(mutex_);
  const auto known = roots_.find(root);
  if (known == roots_.end()) return false;
  std::vector<Piece> found;
  std::vector<PageId> used;
  PageId at = known->second;
  const std::int64_t size = layout_.positions();
  for (std::int64_t first = 0; first < end; first += size) {
    const std::span<const std::int32_t> own = tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(std::min(size, end - first)));
    at = behind(pages_.at(at), {own.begin(), own.end()});
    if (at == kNowhere) return false;
    if (first + size <= begin) continue;
    const Page& page = pages_.at(at);
    if (!page.rows) return false;
    const std::int64_t from = std::max<std::int64_t>(begin - first, 0);
    found.push_back({page.rows, from, static_cast<std::int64_t>(own.size()) - from});
    used.push_back(at);
  }
  for (const PageId id : used) touch(id, pages_.at(id));
  pieces.insert(pieces.end(), found.begin(), found.end());
  return true;
}

void KeptForwards::forget(std::uint64_t identity) {
  const std::lock_guard lock(mutex_);
  for (auto root = roots_.begin(); root != roots_.end();) {
    if (root->first.weights != identity && root->first.adapter != identity) {
      ++root;
      continue;
    }
    remove(root->second);
    root = roots_.erase(root);
  }
}

std::vector<std::int64_t> KeptForwards::rows_to_compare(std::int64_t rows) {
  const std::lock_guard lock(mutex_);
  std::vector<std::int64_t> chosen;
  for (std::int64_t row = 0; row < rows; ++row)
    if (settings_.verify_every > 0 && rows_read_++ % static_cast<std::uint64_t>(settings_.verify_every) == 0) chosen.push_back(row);
  return chosen;
}

bool KeptForwards::compares_forward() {
  const std::lock_guard lock(mutex_);
  return settings_.verify_every > 0 && forwards_read_++ % static_cast<std::uint64_t>(settings_.verify_every) == 0;
}

}  // namespace lockstep
