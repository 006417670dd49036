// The queue between callers of a generation service and its executor. post() hands the executor a command, such as "submit this request". Each account with
// open requests has one item in the executor; when an account's turn comes, the engine makes one step for the requests of all accounts. Callbacks of a
// step run after it, and never under the lock. Any thread, where a function wants no OnExecutor.
//   ServiceTurns turns(model, executor, own_account, step_engine, take_parts); turns.post([&](const OnExecutor&) { engine.submit(request); }, owners);
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "serving/on_executor.h"
#include "serving/request_bounds.h"

namespace lockstep {

class ServiceTurns {
 public:
  using Command = std::function<void(const OnExecutor& on)>;
  // Whose rows the engine's forwards have had since the last call.
  using TakeParts = std::function<std::vector<DevicePart>(const OnExecutor& on)>;

  // `model` names the service in errors. Who has parts in a piece pays for it, a step or commands that waited for forwards; without any whose turn it is,
  // and for commands without a request `own_account`. Neither `step_engine` nor `take_parts` may throw.
  ServiceTurns(std::string model, std::shared_ptr<Executor> executor, std::shared_ptr<ShareAccount> own_account, Command step_engine, TakeParts take_parts)
      : model_(std::move(model)),
        executor_(std::move(executor)),
        own_account_(std::move(own_account)),
        step_engine_(std::move(step_engine)),
        take_parts_(std::move(take_parts)) {}

  // Runs the command in a step of the executor, after those posted before. A command that begins no request costs no step. Error cancelled once stopped.
  void post(Command command);
  // The same; each owner has one more open request, until ended().
  void post(Command command, std::span<const RequestOwner> owners);
  void ended(const RequestOwner& owner);
  // Runs once, after all callbacks of this step.
  void after_step(const OnExecutor& on, Command callback) { after_step_.at(on).push_back(std::move(callback)); }
  // `last` is the last command; when this returns, the executor has no work of the service. Calling it again has no effect.
  void stop(Command last);

 private:
  // Of an account with open requests, or with an item in the executor.
  struct Turn {
    std::shared_ptr<ShareAccount> account;
    std::int64_t open = 0;
    bool scheduled = false;
  };
  void check_stopped() const;
  bool step(const OnExecutor& on, ShareAccount* whose);
  bool goes_on(ShareAccount* whose);
  void run_commands(const OnExecutor& on);
  void run_commands_alone(const OnExecutor& on);  // a piece without a step
  void run_after_step(const OnExecutor& on);

  const std::string model_;
  const std::shared_ptr<Executor> executor_;
  const std::shared_ptr<ShareAccount> own_account_;
  const Command step_engine_;
  const TakeParts take_parts_;
  OfExecutor<std::vector<Command>> after_step_;
  std::mutex mutex_;  // of all below
  std::vector<Command> commands_;
  bool command_scheduled_ = false;  // an item that runs them is in the executor
  std::unordered_map<ShareAccount*, Turn> turns_;
  bool stopped_ = false;
};

}  // namespace lockstep
