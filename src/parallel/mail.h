// Messages between the processes that share a run's ranks, over a wire. A message's head says which exchange it belongs to (parallel/letter.h): it
// waits until its reader asks for it, is an error when the reader expects another exchange, and is dropped when its run has failed.
//   ProcessMail mail(std::move(wire)); mail.begin_run(); mail.post(to, head, bytes); const Letter got = mail.take(slot, number, from);
//   mail.finish_run({});
// Every process makes the same runs in the same order, and at the end of each tells all others how its part ended, so that a failure releases those
// that wait. Between runs process 0 makes calls, plain bytes, which the others repeat. When a process ends early or cannot repeat a call, those that
// wait for it get an error. Any thread.
#pragma once
#include <chrono>
#include <compare>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "parallel/letter.h"
#include "parallel/repeated_turns.h"
#include "parallel/wire.h"

namespace lockstep {

// Bounds each wait for a letter that this thread begins while it lives, for exchanges between which nobody computes: a letter that takes longer is an
// error, LetterLate. One inside another counts.
//   const MailPatience patience(std::chrono::seconds(60)); group.gather_host("x");
class MailPatience {
 public:
  explicit MailPatience(std::chrono::milliseconds most);
  ~MailPatience();
  MailPatience(const MailPatience&) = delete;
  MailPatience& operator=(const MailPatience&) = delete;
  static std::chrono::milliseconds current();  // 0: waits may last for ever

 private:
  std::chrono::milliseconds outer_;
};

class ProcessMail {
 public:
  struct Slot {
    int group, from, to;
    auto operator<=>(const Slot&) const = default;
  };

  explicit ProcessMail(std::unique_ptr<Wire> wire);
  // Says good-bye and waits until the others have.
  ~ProcessMail();
  ProcessMail(const ProcessMail&) = delete;
  ProcessMail& operator=(const ProcessMail&) = delete;

  int process() const { return process_; }
  int processes() const { return processes_; }
  const std::string& host() const { return host_; }

  void begin_run();
  // Sends a message; `process` may be this one.
  void post(int process, LetterHead head, std::string body);
  // The slot's next letter, which must be of this exchange; `process` is the one that sends it. Errors: RankReleased; internal when the sender
  // has another exchange now, or none; io when a process ended; LetterLate.
  Letter take(const Slot& slot, std::uint64_t number, int process);
  // From true to false, which come in pairs, a thread of this object moves letters; otherwise only those that wait do.
  void move_meanwhile(bool on) { mover_.ask(on); }
  // For who waits for something else in a run: throws what take() would while no letter comes, but for LetterLate.
  void check_run();
  // A rank of this process failed: the other ranks of this process that wait in take() get RankReleased.
  void release();
  // Tells how this process's part ended, and waits for the others: by process. Errors: io.
  std::vector<RunEnd> finish_run(const RunEnd& mine);

  // From now on every wait calls `lost` repeatedly, and fails with the text that it returns unless that is empty (no process is lost). What it refers
  // to outlives the mail.
  void watch(std::function<std::string()> lost);
  // What `lost` returns now; empty without one.
  std::string lost();

  // Process 0, between runs: sends a call to all others.
  void call(const std::string& bytes);
  // The others: the next call; none when process 0 has ended well. Errors: io; internal when this process has made fewer runs, or more.
  std::optional<std::string> next_call();
  // The others: reports to process 0 that the newest call failed here. If process 0 waits for this process in a run of that call, its wait fails with
  // these words; if the call failed there too, they change nothing.
  void fail_call(const std::string& words);

 private:
  struct Sent {
    Letter letter;
    std::vector<Wire::Request> requests;
  };
  struct Incoming {
    Letter letter;
    Wire::Request request = nullptr;
    bool body = false;  // its head is here
  };
  // ready() under the lock, again and again, until it gives something; the wire moves meanwhile.
  template <class F>
  auto wait(const F& ready);
  void pump();
  void move_letters();
  void deliver(int process, Letter&& letter);
  void send(int process, Letter&& letter);
  void listen(int process);
  void check_there() const;
  void check_released() const;

  std::mutex mutex_;
  std::unique_ptr<Wire> wire_;
  int process_, processes_;
  std::string host_;
  std::list<Sent> sent_;
  std::vector<Incoming> incoming_;  // by process
  std::map<Slot, std::deque<Letter>> letters_;
  std::vector<std::map<std::uint64_t, RunEnd>> ends_;  // by process and run
  std::deque<Letter> calls_;
  struct FailedCall {
    std::uint64_t number = 0;
    std::string words;
  };
  std::vector<FailedCall> failed_;    // the newest one of each process
  std::vector<bool> gone_;            // the processes that have left in order
  std::uint64_t run_ = 0, call_ = 0;  // numbers of runs and calls so far
  bool in_run_ = false, released_ = false;
  std::function<std::string()> lost_;
  std::string broken_;  // what the wire said when it failed
  std::string late_;    // which letter came too late
  RepeatedTurns mover_;
};

}  // namespace lockstep
