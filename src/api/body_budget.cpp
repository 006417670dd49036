#include "api/body_budget.h"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>

#include "api/errors.h"

namespace lockstep {
namespace {
constexpr std::int64_t kWorthReturning = 4 << 20;

// Of the limit, what is left for memory that no lease counts: stacks of the threads that decode, beginnings of bodies, and what the allocator keeps of
// freed blocks, less than kWorthReturning in each of the eight threads that read bodies.
std::int64_t left_uncounted(std::int64_t most_bytes) { return std::min<std::int64_t>(most_bytes / 8, 8 * kWorthReturning); }

std::string megabytes(std::int64_t bytes) { return fmt::format("{:.1f} MB", static_cast<double>(bytes) / (1 << 20)); }

[[noreturn]] void refuse_body(int status, std::string message) { throw RequestError(ErrorCode::resource_exhausted, {}, std::move(message), status); }

// Gives memory of many small freed blocks back to the system; else the process holds them beside what the next request takes.
void return_free_memory() {
  // The end of a thread's own heap is given back when a large block is freed, and not by malloc_trim.
  void* volatile block = std::malloc(256 << 10);
  std::free(block);
  malloc_trim(0);
}
}  // namespace

BodyBudget::BodyBudget(std::int64_t most_bytes, std::int64_t share_percent)
    : most_(most_bytes), share_(std::clamp<std::int64_t>(most_bytes / 100 * share_percent, 1, most_bytes - left_uncounted(most_bytes))) {}

std::shared_ptr<BodyLease> BodyBudget::lease(std::string owner) { return std::make_shared<BodyLease>(shared_from_this(), std::move(owner)); }

std::int64_t BodyBudget::bytes() const {
  const std::lock_guard lock(mutex_);
  return taken_;
}

void BodyBudget::take(const std::string& owner, std::int64_t own, std::int64_t more) {
  const std::lock_guard lock(mutex_);
  const auto found = by_owner_.find(owner);
  const std::int64_t wanted = (found == by_owner_.end() ? 0 : found->second) + more;
  const std::int64_t uncounted = left_uncounted(most_);
  const bool fits = taken_ + more <= most_ - uncounted;
  if (wanted > share_) ++refused_to_owner_;
  else if (!fits) ++refused_to_all_;
  if (own + more > share_)
    refuse_body(413, fmt::format("this request takes {} or more, allowed are {}, {}% of the server's {} for requests' bodies (--body-megabytes, --key-share)",
                                 megabytes(own + more), megabytes(share_), share_ * 100 / most_, megabytes(most_)));
  if (wanted > share_)
    refuse_body(429, fmt::format("with this one the requests of this API key take {}, allowed are {} of the server's {} for requests' bodies "
                                 "(--body-megabytes, --key-share); try again when some are answered",
                                 megabytes(wanted), megabytes(share_), megabytes(most_)));
  if (!fits)
    refuse_body(503,
                fmt::format("with this one the requests of this API key take {} and those of all keys {}, allowed are {} (--body-megabytes) less {} for what "
                            "is not counted; try again when some are answered",
                            megabytes(wanted), megabytes(taken_ + more), megabytes(most_), megabytes(uncounted)));
  taken_ += more;
  peak_ = std::max(peak_, taken_);
  by_owner_[owner] = wanted;
}

void BodyBudget::give(const std::string& owner, std::int64_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  taken_ -= bytes;
  const auto found = by_owner_.find(owner);
  if ((found->second -= bytes) == 0) by_owner_.erase(found);
}

void BodyBudget::append_metrics(PrometheusText& text) const {
  const std::lock_guard lock(mutex_);
  text.family("lockstep_body_bytes", "gauge", "Memory of requests' bodies that are read, decoded or wait for their turn.");
  text.sample({}, static_cast<double>(taken_));
  text.family("lockstep_body_peak_bytes", "gauge", "The most that it was.");
  text.sample({}, static_cast<double>(peak_));
  text.family("lockstep_bodies_refused_total", "counter", "Requests refused because their key's share, or what there is for all, was taken.");
  text.sample({{"limit", "key"}}, static_cast<double>(refused_to_owner_));
  text.sample({{"limit", "all"}}, static_cast<double>(refused_to_all_));
}

void BodyLease::take(std::size_t bytes) {
  if (bytes == 0) return;
  const auto more = static_cast<std::int64_t>(std::min<std::size_t>(bytes, std::size_t{1} << 60));
  budget_->take(owner_, bytes_, more);
  bytes_ += more;
}

std::shared_ptr<void> BodyLease::split(std::size_t bytes) {
  auto part = std::make_shared<BodyLease>(budget_, owner_);
  part->bytes_ = std::min(bytes_, static_cast<std::int64_t>(std::min<std::size_t>(bytes, std::size_t{1} << 60)));
  bytes_ -= part->bytes_;
  return part;
}

void BodyLease::settle(std::size_t bytes) {
  const auto wanted = static_cast<std::int64_t>(bytes);
  if (wanted > bytes_) return take(bytes - static_cast<std::size_t>(bytes_));
  if (bytes_ - wanted >= kWorthReturning) return_free_memory();  // before another may take as much
  budget_->give(owner_, bytes_ - wanted);
  bytes_ = wanted;
}

void BodyLease::return_freed() const {
  if (bytes_ >= kWorthReturning) return_free_memory();
}

}  // namespace lockstep
