#include "launch/attempt.h"

#include <signal.h>

#include <cstdio>

namespace lockstep {

namespace {
constexpr double kAfterALoss = 2;  // seconds for mpirun to end what is left
constexpr double kToKill = 3;      // from SIGTERM on, which it may not outlive where a host is gone
constexpr double kToBegin = 3;     // until process 0 is there, where it is asked to save before: after that there is nothing to save
constexpr int kSave = SIGUSR1;     // SIGTERM would make mpirun kill them all after a second, or wait that long in vain
}  // namespace

void Attempt::hear(const LaunchWord& word, double now) {
  begun_ = true;
  if (word.process == 0) leader_begun_ = true;
  if (!word.ended) return;
  if (word.process == 0) leader_ = word;
  if (word.lost.empty()) return;
  if (lost_.empty()) lost_ = word.lost;
  if (!lost_at_) lost_at_ = now;
}

void Attempt::listen(int milliseconds, double now) {
  for (const std::string& line : mpirun_.lines(milliseconds))
    if (const std::optional<LaunchWord> word = read_launch_word(line)) hear(*word, now);
    else std::fprintf(stderr, "%s\n", line.c_str());
}

void Attempt::pass(int milliseconds, double now, double patience) {
  listen(milliseconds, now);
  if (asked_at_ && leader_begun_ && !told_) mpirun_.signal(kSave), told_ = true;  // before, there would be nobody whom mpirun could pass it on to
  const bool hangs = (lost_at_ && now > *lost_at_ + kAfterALoss) || (asked_at_ && now > *asked_at_ + (leader_begun_ ? patience : kToBegin));
  if (hangs && !ended_at_) mpirun_.signal(SIGTERM), ended_at_ = now;
  if (ended_at_ && now > *ended_at_ + kToKill) mpirun_.signal(SIGKILL);
}

Attempt::Outcome Attempt::outcome(int processes, double now) {
  listen(0, now);
  Outcome outcome{.status = leader_ ? leader_->status : mpirun_.ended().value_or(0)};
  const std::string& lost = leader_ && !leader_->lost.empty() ? leader_->lost : lost_;
  if (leader_ && leader_->status == 0) outcome.end = End::finished;
  else if (leader_ && asked_at_ && leader_->status == 128 + kSave) outcome.end = End::saved;
  else if (leader_ && leader_->lost.empty()) outcome.end = End::failed;
  else if (!lost.empty()) outcome = {End::lost, outcome.status, lost};
  else if (begun_) outcome = {End::lost, outcome.status, processes == 1 ? "the process ended without a word" : "all processes ended without a word"};
  return outcome;
}

}  // namespace lockstep
