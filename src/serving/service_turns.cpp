#include "serving/service_turns.h"

#include <thread>
#include <utility>

#include "base/burst.h"
#include "base/error.h"
#include "serving/guarded_call.h"

namespace lockstep {

void ServiceTurns::check_stopped() const {
  if (stopped_) fail(ErrorCode::cancelled, "the service of model '{}' has stopped", model_);
}

void ServiceTurns::post(Command command) {
  const std::lock_guard lock(mutex_);
  check_stopped();
  if (!command_scheduled_)
    executor_->submit(own_account_, [this] {
      const OnExecutor on(*executor_);
      {
        const std::lock_guard now(mutex_);
        command_scheduled_ = false;
      }
      run_commands_alone(on);
      return false;
    });
  command_scheduled_ = true;
  commands_.push_back(std::move(command));
}

void ServiceTurns::post(Command command, std::span<const RequestOwner> owners) {
  const std::lock_guard lock(mutex_);
  check_stopped();
  for (const RequestOwner& owner : owners) {
    Turn& turn = turns_[owner.account.get()];
    turn.account = owner.account;
    if (!turn.scheduled) executor_->submit(owner.account, [this, whose = owner.account.get()] { return step(OnExecutor(*executor_), whose); });
    turn.scheduled = true;
    ++turn.open;
  }
  commands_.push_back(std::move(command));
}

void ServiceTurns::ended(const RequestOwner& owner) {
  const std::lock_guard lock(mutex_);
  --turns_.at(owner.account.get()).open;
}

void ServiceTurns::run_commands(const OnExecutor& on) {
  std::vector<Command> commands;
  {
    const std::lock_guard lock(mutex_);
    commands.swap(commands_);
  }
  for (Command& command : commands) command(on);
}

void ServiceTurns::run_commands_alone(const OnExecutor& on) {
  executor_->name_piece("command");
  run_commands(on);
  run_after_step(on);
  executor_->name_piece("command", take_parts_(on));
}

void ServiceTurns::run_after_step(const OnExecutor& on) {
  std::vector<Command>& wanted = after_step_.at(on);
  if (wanted.empty()) return;
  {
    const Burst burst;  // what they send wakes a sender once
    // What they call may add others.
    while (!wanted.empty()) {
      const std::vector<Command> callbacks = std::exchange(wanted, {});
      for (const Command& callback : callbacks) guarded_call("after_step", [&] { callback(on); });
    }
  }
  // Senders go before the next step: it keeps every processor busy, and they would wait for a tick of the system's clock.
  std::this_thread::yield();
}

// Whether the account still has an open request; its turn ends where not.
bool ServiceTurns::goes_on(ShareAccount* whose) {
  const std::lock_guard lock(mutex_);
  const auto turn = turns_.find(whose);
  if (turn->second.open > 0) return true;
  turns_.erase(turn);
  return false;
}

// In the turn of one account; the engine's step is everybody's.
bool ServiceTurns::step(const OnExecutor& on, ShareAccount* whose) {
  executor_->name_piece("command");
  run_commands(on);
  // What it had may have ended in the turns of others.
  const bool steps = goes_on(whose);
  if (steps) step_engine_(on);
  run_after_step(on);
  executor_->name_piece(steps ? "forward" : "command", take_parts_(on));
  return steps && goes_on(whose);
}

void ServiceTurns::stop(Command last) {
  std::vector<std::shared_ptr<ShareAccount>> accounts;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(stopped_, true)) return;
    for (const auto& [whose, turn] : turns_) accounts.push_back(turn.account);
    commands_.push_back(std::move(last));
  }
  try {
    run_on(*executor_, own_account_, [this](const OnExecutor& on) { run_commands_alone(on); }).get();
    // Behind the items of those who had requests: none of ours is in the executor after that.
    for (const std::shared_ptr<ShareAccount>& account : accounts) executor_->run(account, [] {}).get();
  } catch (const std::exception&) {
    executor_->stop();  // it is stopping, and did not take this: nobody else is on the device after it
    run_commands_alone(OnExecutor(*executor_));
  }
}

}  // namespace lockstep
