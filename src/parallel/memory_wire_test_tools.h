// A wire between threads that stand for processes, with the order and the copies of a network. Tests only.
//   auto net = std::make_shared<MemoryNet>(2); std::vector<std::unique_ptr<ProcessMail>> of_processes = ...MemoryWire(net, 0), (net, 1)
#pragma once
#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "parallel/process_ranks.h"

namespace lockstep {

struct MemoryNet {
  explicit MemoryNet(int processes) : processes(processes), ways(static_cast<std::size_t>(processes * processes)) {}
  std::deque<std::string>& way(int from, int to) { return ways[static_cast<std::size_t>(from * processes + to)]; }
  const int processes;
  std::mutex mutex;
  std::vector<std::deque<std::string>> ways;  // by pair
  std::map<std::pair<int, int>, int> taken;   // messages so far, by pair
  // Called under the lock: while it returns true, messages of that pair do not arrive. Null: all arrive.
  std::function<bool(int from, int to)> late;
  // The same, with each message that arrives: it may change bytes. Null: none.
  std::function<void(int from, int to, std::string& bytes)> changes;
  bool aborted = false;  // a process stopped, not clean: nothing moves any more
};

class MemoryWire final : public Wire {
 public:
  MemoryWire(std::shared_ptr<MemoryNet> net, int process) : net_(std::move(net)), process_(process) {}
  int process() const override { return process_; }
  int processes() const override { return net_->processes; }
  std::string host() const override { return "here"; }
  Request send(int to, const void* data, std::size_t bytes) override {
    const std::lock_guard lock(net_->mutex);
    net_->way(process_, to).emplace_back(static_cast<const char*>(data), bytes);
    return new Want{-1, nullptr, 0};
  }
  Request receive(int from, void* data, std::size_t bytes) override { return new Want{from, data, bytes}; }
  bool done(Request request) override {
    auto* want = static_cast<Want*>(request);
    if (want->from >= 0) {
      const std::lock_guard lock(net_->mutex);
      if (net_->aborted) fail(ErrorCode::io, "another process has aborted the job");
      std::deque<std::string>& way = net_->way(want->from, process_);
      if (way.empty() || (net_->late && net_->late(want->from, process_))) return false;
      if (way.front().size() != want->bytes) fail(ErrorCode::internal, "{} bytes were sent, and {} are received", way.front().size(), want->bytes);
      if (net_->changes) net_->changes(want->from, process_, way.front());
      std::copy(way.front().begin(), way.front().end(), static_cast<char*>(want->data));
      way.pop_front();
      ++net_->taken[{want->from, process_}];
    }
    delete want;
    return true;
  }
  void stop(bool clean) override {
    const std::lock_guard lock(net_->mutex);
    net_->aborted = net_->aborted || !clean;
  }

 private:
  struct Want {
    int from;
    void* data;
    std::size_t bytes;
  };
  std::shared_ptr<MemoryNet> net_;
  int process_;
};

// Runs work(mail) for every process, each on a thread of its own.
inline void as_processes(const std::shared_ptr<MemoryNet>& net, const std::function<void(ProcessMail&)>& work) {
  std::vector<std::thread> threads;
  for (int p = 0; p < net->processes; ++p)
    threads.emplace_back([&, p] {
      ProcessMail mail(std::make_unique<MemoryWire>(net, p));
      work(mail);
    });
  for (std::thread& thread : threads) thread.join();
}
inline void as_processes(int processes, const std::function<void(ProcessMail&)>& work) { as_processes(std::make_shared<MemoryNet>(processes), work); }

}  // namespace lockstep
