#include "base/memory_ledger.h"

#include <map>
#include <mutex>
#include <utility>

#include "base/error.h"

namespace lockstep {

struct MemoryLedger::Books {
  struct Account {
    std::int64_t bytes = 0, claims = 0;
    std::map<std::string, std::int64_t> by_key;
    std::string remedy;
  };
  const std::int64_t total;
  mutable std::mutex mutex;
  std::int64_t held = 0;
  std::map<std::string, Account> accounts;

  explicit Books(std::int64_t bytes) : total(bytes) {}
  // Call with the lock held. Never grows beyond the total.
  bool add(Account& account, const std::string& key, std::int64_t bytes) {
    if (bytes > 0 && bytes > total - held) return false;
    std::int64_t& own = account.by_key[key];
    held += bytes;
    account.bytes += bytes;
    own += bytes;
    return true;
  }
};

MemoryLedger::MemoryLedger(std::int64_t total) : books_(std::make_shared<Books>(total)) {
  if (total < 0) fail(ErrorCode::invalid_argument, "a memory budget of {} bytes, allowed is 0 and up", total);
}

MemoryLedger::Claim& MemoryLedger::Claim::operator=(Claim&& other) noexcept {
  if (this == &other) return *this;
  release();
  books_ = std::move(other.books_);
  category_ = std::move(other.category_);
  key_ = std::move(other.key_);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

bool MemoryLedger::Claim::try_resize(std::int64_t bytes) {
  if (bytes < 0) fail(ErrorCode::internal, "a claim of {} bytes of memory", bytes);
  if (!books_) return bytes == 0;
  const std::lock_guard lock(books_->mutex);
  if (!books_->add(books_->accounts.find(category_)->second, key_, bytes - bytes_)) return false;
  bytes_ = bytes;
  return true;
}

void MemoryLedger::Claim::release() noexcept {
  if (!books_) return;
  {
    const std::lock_guard lock(books_->mutex);
    Books::Account& account = books_->accounts.find(category_)->second;
    books_->held -= bytes_;
    account.bytes -= bytes_;
    --account.claims;
    // Claims of 0 bytes are not recorded, so the key may be missing.
    if (const auto own = account.by_key.find(key_); own != account.by_key.end() && (own->second -= bytes_) == 0) account.by_key.erase(own);
  }
  books_.reset();
  bytes_ = 0;
}

std::optional<MemoryLedger::Claim> MemoryLedger::try_claim(const std::string& category, const std::string& key, std::int64_t bytes) {
  if (bytes < 0) fail(ErrorCode::internal, "a claim of {} bytes of memory", bytes);
  Claim claim;
  claim.category_ = category;
  claim.key_ = key;
  const std::lock_guard lock(books_->mutex);
  Books::Account& account = books_->accounts[category];
  if (!books_->add(account, key, bytes)) return std::nullopt;
  ++account.claims;
  claim.bytes_ = bytes;
  claim.books_ = books_;
  return claim;
}

MemoryLedger::Claim MemoryLedger::claim(const std::string& category, const std::string& key, std::int64_t bytes, const std::string& what) {
  std::optional<Claim> claim = try_claim(category, key, bytes);
  if (!claim) refuse(bytes, what);
  return std::move(*claim);
}

void MemoryLedger::describe(const std::string& category, const std::string& remedy) {
  const std::lock_guard lock(books_->mutex);
  books_->accounts[category].remedy = remedy;
}

std::int64_t MemoryLedger::total() const { return books_->total; }
std::int64_t MemoryLedger::held() const {
  const std::lock_guard lock(books_->mutex);
  return books_->held;
}
std::int64_t MemoryLedger::held(const std::string& category) const {
  const std::lock_guard lock(books_->mutex);
  const auto found = books_->accounts.find(category);
  return found == books_->accounts.end() ? 0 : found->second.bytes;
}
std::int64_t MemoryLedger::held(const std::string& category, const std::string& key) const {
  const std::lock_guard lock(books_->mutex);
  const auto found = books_->accounts.find(category);
  if (found == books_->accounts.end()) return 0;
  const auto own = found->second.by_key.find(key);
  return own == found->second.by_key.end() ? 0 : own->second;
}

std::vector<MemoryLedger::Holding> MemoryLedger::holdings() const {
  const std::lock_guard lock(books_->mutex);
  std::vector<Holding> all;
  for (const auto& [category, account] : books_->accounts) all.push_back({category, account.bytes, account.claims});
  return all;
}

void MemoryLedger::refuse(std::int64_t bytes, const std::string& what) const {
  std::string held, ways;
  std::int64_t free = 0;
  {
    const std::lock_guard lock(books_->mutex);
    free = books_->total - books_->held;
    for (const auto& [category, account] : books_->accounts) {
      if (account.bytes == 0) continue;
      held += fmt::format("{}{} {}", held.empty() ? "" : ", ", category, megabytes_text(account.bytes));
      if (!account.remedy.empty()) ways += fmt::format("{}{}: {}", ways.empty() ? "" : "; ", category, account.remedy);
    }
  }
  fail(ErrorCode::resource_exhausted, "{} takes {} of memory, {} of {} are free (--memory-megabytes); held: {}{}{}", what, megabytes_text(bytes),
       megabytes_text(free), megabytes_text(books_->total), held.empty() ? "nothing" : held, ways.empty() ? "" : "; what frees some: ", ways);
}

std::string megabytes_text(std::int64_t bytes) { return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1048576.0); }

}  // namespace lockstep
