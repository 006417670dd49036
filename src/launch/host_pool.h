// Which slots of which hosts a launch may use now: a process that is lost takes its slot out of use, a host that does not answer all of its. After a while,
// which doubles with each loss, such a host is asked; one that answers is taken back when the caller says (at a checkpoint).
//   HostPool pool(hosts, {.first_wait = 60, .most_losses = 3}); pool.lose_slot(1, now); pool.usable(); for (int h : pool.to_ask(now)) ...
//   pool.answered(1, true, now); if (pool.somebody_waits()) pool.take_back();
// Knows no process and no clock: times are the caller's seconds. One thread.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "launch/hosts.h"

namespace lockstep {

struct TakeBackRule {
  double first_wait = 60;  // seconds from a host's first loss until it is asked
  int most_losses = 3;     // a host that was lost more often without checkpoints between is left out for good
};
constexpr double kLongestWait = 3600;  // the doubling ends there

class HostPool {
 public:
  HostPool(std::vector<Host> hosts, const TakeBackRule& rule);

  const std::vector<Host>& all() const { return all_; }
  // Those with slots in use, in order.
  std::vector<Host> usable() const;
  // The host of the process of that number, of so many on the usable hosts' slots in order; `name` is what the process calls its host, which decides where
  // it is one of the usable ones'. -1: none.
  int host_of(int process, const std::string& name) const;
  // A process there died.
  void lose_slot(int host, double now);
  // It does not answer.
  void lose_host(int host, double now);
  // Out of use as a whole or in part, not for good, not known to answer, and its wait is over.
  std::vector<int> to_ask(double now) const;
  // What asking came to: no answer begins another wait.
  void answered(int host, bool it_does, double now);
  bool somebody_waits() const;  // to be taken back
  // The run has saved a checkpoint: of a host whose slots are all in use one loss is forgotten.
  void checkpoint();
  // All slots of those that answer are in use again: their names.
  std::vector<std::string> take_back();
  // Out of use as a whole or in part and not for good, whatever its wait: where nothing is usable, whom to ask; empty: all are left out for good.
  std::vector<int> may_come_back() const;
  int losses(int host) const { return states_[static_cast<std::size_t>(host)].losses; }
  // Which was lost most often; -1: none was.
  int worst() const;

 private:
  struct State {
    int out = 0;  // slots
    int losses = 0;
    double wait = 0, ask_at = 0;
    bool answers = false;
  };
  bool for_good(const State& state) const { return state.losses > rule_.most_losses; }
  void lose(int host, int slots, double now);

  std::vector<Host> all_;
  TakeBackRule rule_;
  std::vector<State> states_;
};

}  // namespace lockstep
