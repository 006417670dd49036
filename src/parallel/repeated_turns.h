// A turn that a thread of its own makes again and again, a moment apart, while somebody asks for it.
//   RepeatedTurns turns([&] { move_what_is_on_the_way(); }); turns.ask(true); compute(); turns.ask(false);
// The thread begins with the first question. A turn throws nothing. Any thread.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace lockstep {

class RepeatedTurns {
 public:
  explicit RepeatedTurns(std::function<void()> turn) : turn_(std::move(turn)) {}
  ~RepeatedTurns() { stop(); }
  RepeatedTurns(const RepeatedTurns&) = delete;
  RepeatedTurns& operator=(const RepeatedTurns&) = delete;

  // True and false come in pairs, perhaps from several threads: turns are made from the first true to the last false.
  void ask(bool more);
  // No turn is made from here on.
  void stop();

 private:
  void repeat();

  std::function<void()> turn_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int asked_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace lockstep
