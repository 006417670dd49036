// Shares one executor among the models of a training server. Each model has a lane, whose steps run in order. The executor divides time among owners
// by their shares (serving/executor.h); within an owner lanes take turns, one step each, so a session with huge batches delays another by one step at
// most. A step that does not fill a forward takes steps of other lanes along, where they can share a pass; each pays by its tokens, keeps its own
// turn, and is never later than it would be alone. Knows no operation. Any thread.
//   queue.submit(model_id, owner, [&](const OnExecutor& on) { return piece(on); });   // true: it wants to run again
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "serving/on_executor.h"

namespace lockstep {

class TrainingQueue : public std::enable_shared_from_this<TrainingQueue> {
 public:
  using Work = std::function<bool(const OnExecutor& on)>;
  // An item of a lane. Its functions must not throw.
  class Step {
   public:
    virtual ~Step() = default;
    // Returns true to run again.
    virtual bool run(const OnExecutor& on) = 0;
    // Steps that name the same `pass` (not null) can run in one; `tokens`: of a turn.
    struct Offer {
      const void* pass = nullptr;
      std::int64_t tokens = 0;
    };
    virtual Offer offer(const OnExecutor& on) { return {}; }
    // Runs this step and others that offered the same pass. Returns which want to run again, this one first.
    virtual std::vector<bool> run_with(const OnExecutor& on, const std::vector<Step*>& others) { return {}; }
    virtual const char* kind() const { return "operation"; }  // of the piece, for metrics
  };

  // `tokens_a_turn`: the size of a full turn. 0: each step has its own turn.
  explicit TrainingQueue(std::shared_ptr<Executor> executor, std::int64_t tokens_a_turn = 0) : executor_(std::move(executor)), tokens_a_turn_(tokens_a_turn) {}
  // A lane has one owner; "": the server. Error cancelled once the executor is stopped.
  void submit(const std::string& lane, const std::string& owner, std::shared_ptr<Step> step);
  void submit(const std::string& lane, const std::string& owner, Work work, const char* kind = "operation");
  // Drops a lane's waiting items; a running step ends first.
  void drop(const std::string& lane);
  std::size_t waiting() const;
  // Whether other lanes than the running one have work.
  bool others_wait() const;

 private:
  struct Lane {
    std::string name, owner;
    std::deque<std::shared_ptr<Step>> steps;  // not empty
  };
  struct InTurn {
    std::string lane, owner;
    std::shared_ptr<Step> step;
    std::int64_t tokens = 0;  // where there are several
  };
  bool run_one(const std::string& owner);
  std::vector<InTurn> turn(const OnExecutor& on, const std::string& owner);

  std::shared_ptr<Executor> executor_;
  const std::int64_t tokens_a_turn_;
  mutable std::mutex mutex_;
  std::deque<Lane> lanes_;           // those with work, by whose turn is next
  std::set<std::string> scheduled_;  // owners that have an item in the executor
};

}  // namespace lockstep
