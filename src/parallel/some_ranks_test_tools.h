// A subset of a ThreadRanks' ranks, as a process that owns only some of the ranks would have. Other owners run beside it, each on a thread.
// Tests only.
//   auto all = std::make_shared<ThreadRanks>(layout); SomeRanks first(all, 0, 1), rest(all, 1, 3);
#pragma once
#include <exception>
#include <mutex>
#include <thread>

#include "parallel/thread_ranks.h"

namespace lockstep {

class SomeRanks final : public Ranks {
 public:
  SomeRanks(std::shared_ptr<ThreadRanks> all, int begin, int count) : all_(std::move(all)), begin_(begin), count_(count) {}
  const RankLayout& layout() const override { return all_->layout(); }
  int local() const override { return count_; }
  RankPlace place(int local) const override { return all_->place(begin_ + local); }
  void run(const std::function<void(int)>& work) override {
    std::exception_ptr error;
    std::mutex mutex;
    const auto guarded = [&](int local) {
      try {
        work(local);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
      }
    };
    std::vector<std::thread> threads;
    for (int local = 1; local < count_; ++local) threads.emplace_back(guarded, local);
    guarded(0);
    for (std::thread& thread : threads) thread.join();
    if (error) std::rethrow_exception(error);
  }

 private:
  std::shared_ptr<ThreadRanks> all_;
  int begin_, count_;
};

// Runs work(owner, ranks) for owners of counts[owner] ranks each, dealt in rank order, every owner on a thread of its own.
inline void beside_each_other(const RankLayout& layout, const std::vector<int>& counts, const std::function<void(std::size_t, std::unique_ptr<Ranks>)>& work) {
  const auto all = std::make_shared<ThreadRanks>(layout);
  std::vector<std::thread> owners;
  int begin = 0;
  for (std::size_t owner = 0; owner < counts.size(); ++owner) {
    owners.emplace_back([&, owner, begin] { work(owner, std::make_unique<SomeRanks>(all, begin, counts[owner])); });
    begin += counts[owner];
  }
  for (std::thread& owner : owners) owner.join();
}

}  // namespace lockstep
