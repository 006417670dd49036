// Runs the ranks of an engine that are in another process than process 0. They hold their shares of weights and cache, and run each step that process 0 sends.
// Knows no request, no queue and no file: weights come from process 0, too.
//   StepFollower follower(runtime, mail); follower.perform(in);   // in: a call of engine/step_calls.h
// Used by one thread.
#pragma once
#include <deque>
#include <memory>

#include "engine/rank_steps.h"
#include "engine/step_calls.h"
#include "parallel/mail.h"

namespace lockstep {

class StepFollower {
 public:
  // Of the first local rank. Both outlive it.
  StepFollower(Runtime& runtime, ProcessMail& mail) : runtime_(runtime), mail_(mail) {}
  void perform(ByteReader& in);

 private:
  void turn(ByteReader& in);

  Runtime& runtime_;
  ProcessMail& mail_;
  std::deque<std::unique_ptr<TakenStep>> under_way_;  // the oldest first
  std::unique_ptr<RankSteps> steps_;
  HostCopy layer_images_;  // of a layer of multi-token prediction that is on its way
  StandIns known_;
};

}  // namespace lockstep
