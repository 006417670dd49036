// Limits the memory of request bodies while they are read, decoded and wait: in all, and per owner. A request that would need more is refused before
// it is read. A lease is one request's part, released with the request. Knows no wire. Any thread; a lease: one thread at a time.
//   auto lease = budget->lease(owner); lease->settle(content_length); ... lease->take(more);
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "base/client_work.h"
#include "observe/prometheus.h"

namespace lockstep {

class BodyLease;

class BodyBudget : public std::enable_shared_from_this<BodyBudget> {
 public:
  BodyBudget(std::int64_t most_bytes, std::int64_t share_percent);

  std::shared_ptr<BodyLease> lease(std::string owner);
  std::int64_t most_bytes() const { return most_; }  // the limit of all bodies together, for plans of the process's memory
  std::int64_t bytes() const;                        // taken now, by all
  void append_metrics(PrometheusText& text) const;

 private:
  friend class BodyLease;
  void take(const std::string& owner, std::int64_t own, std::int64_t more);
  void give(const std::string& owner, std::int64_t bytes);

  const std::int64_t most_, share_;
  mutable std::mutex mutex_;
  std::int64_t taken_ = 0, peak_ = 0;
  std::map<std::string, std::int64_t> by_owner_;
  std::uint64_t refused_to_owner_ = 0, refused_to_all_ = 0;
};

class BodyLease : public MemoryAccount {
 public:
  BodyLease(std::shared_ptr<BodyBudget> budget, std::string owner) : budget_(std::move(budget)), owner_(std::move(owner)) {}
  ~BodyLease() override { budget_->give(owner_, bytes_); }
  BodyLease(const BodyLease&) = delete;
  BodyLease& operator=(const BodyLease&) = delete;

  // Takes `bytes` more. Errors (RequestError), which change nothing: 413 when this request alone would exceed its owner's share, 429 when it
  // would with the owner's other requests, 503 when all requests together would exceed the limit.
  void take(std::size_t bytes) override;
  std::shared_ptr<void> split(std::size_t bytes) override;
  // Makes the lease `bytes` in all, more or less than before. Errors as take(). Call when the memory is freed: what is given up is returned to the system
  // before another lease may take it.
  void settle(std::size_t bytes);
  // Returns what was freed of it to the system; the lease stays as it is, to be released next.
  void return_freed() const;
  std::int64_t bytes() const { return bytes_; }

 private:
  const std::shared_ptr<BodyBudget> budget_;
  const std::string owner_;
  std::int64_t bytes_ = 0;
};

}  // namespace lockstep
