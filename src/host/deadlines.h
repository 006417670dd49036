// A timer: calls back at given times, from one thread. For requests that wait for an event, but not longer than a limit. A callback that has become
// useless must notice that itself. Any thread.
//   Deadlines deadlines; deadlines.add(owner, until, [owner] { owner->late(); }); deadlines.forget(owner);  // forget: in ~Owner
#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

namespace lockstep {

class Deadlines {
 public:
  using Clock = std::chrono::steady_clock;

  Deadlines();
  ~Deadlines();
  Deadlines(const Deadlines&) = delete;
  Deadlines& operator=(const Deadlines&) = delete;

  // Calls `call` once, at `until` or as soon after as other calls allow; it must be short and must not throw. `owner`: for forget().
  void add(const void* owner, Clock::time_point until, std::function<void()> call);
  // Removes that owner's calls and waits for one that is running; must not be called by one of them.
  void forget(const void* owner);

 private:
  struct Entry {
    const void* owner = nullptr;
    std::function<void()> call;
  };
  void watch();

  std::mutex mutex_;
  std::condition_variable changed_, called_;
  std::multimap<Clock::time_point, Entry> entries_;
  const void* calling_ = nullptr;  // whose call is under way
  bool stopping_ = false;
  std::thread thread_;
};

// That many seconds from now.
inline Deadlines::Clock::time_point deadline_in(double seconds) {
  return Deadlines::Clock::now() + std::chrono::duration_cast<Deadlines::Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace lockstep
