// Claims memory on the server's ledger before a training service allocates it, by the figures of host/model_memory.h. When the ledger is full it
// frees what can be restored: first kept forwards, then sampled weights, then idle models with their gradients, which are moved to disk. Nothing that
// is running is moved. If that is not enough: Error resource_exhausted from the ledger, which names what would free memory.
//   MemoryLedger::Claim room = memory.of_model(on, model, settings); const TurnRoom turn = memory.turn(on, &model, bytes, "a step");
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/memory_ledger.h"
#include "host/hosted_model.h"
#include "host/model_memory.h"
#include "host/training_commons.h"

namespace lockstep {

class MemoryRoom;

// Memory for the time of a turn: from the room always reserved for turns, and beyond it from what is free. Left, or destroyed, in a step of the executor;
// elsewhere the program ends.
class TurnRoom {
 public:
  TurnRoom() = default;
  TurnRoom(TurnRoom&& other) noexcept { *this = std::move(other); }
  TurnRoom& operator=(TurnRoom&& other) noexcept;
  ~TurnRoom() { leave(); }
  void leave() noexcept;

 private:
  friend class MemoryRoom;
  MemoryRoom* memory_ = nullptr;
  const HostedModel* model_ = nullptr;  // it is not moved to disk meanwhile
  std::int64_t bytes_ = 0;
};

class MemoryRoom {
 public:
  // Claims what is needed all the time: to move any model to disk, for one turn, and for results that wait.
  explicit MemoryRoom(TrainingCommons& commons);

  // Before the first step: adds a source of memory that can be freed, tried in the order of adding. `free_one` frees one item; false: none is left.
  // `movable`: its bytes that could be freed.
  void add_source(std::function<bool(const OnExecutor&)> free_one, std::function<std::int64_t(const OnExecutor&)> movable = {});

  bool limited() const { return limited_; }
  const ModelMemory& figures(const OnExecutor& on, const ModelSettings& settings);  // zeros without a limit
  // Grows a claim, freeing sources where needed.
  void grow(const OnExecutor& on, MemoryLedger::Claim& claim, std::int64_t bytes, const std::string& what);
  MemoryLedger::Claim claim(const OnExecutor& on, const char* category, const std::string& owner, std::int64_t bytes, const std::string& what);
  MemoryLedger::Claim of_model(const OnExecutor& on, const HostedModel& model, const ModelSettings& settings);
  TurnRoom turn(const OnExecutor& on, const HostedModel* model, std::int64_t bytes, const std::string& what);
  TurnRoom reading(const OnExecutor& on, const ModelSettings& settings, const std::string& what);
  // For the turn of a piece. Reduces the piece to as many sequences as fit, in whole declared groups; the error is for a single one.
  TurnRoom piece(const OnExecutor& on, HostedModel& model, const std::vector<TrainSequence>& all, std::size_t begin, std::size_t& end, bool gradient);
  // For all images at once; on another thread than the executor's, which waits for the room.
  MemoryLedger::Claim writing(const ModelSettings& settings, const std::string& what);
  // Reads weights for sampling, with a claim of their own.
  SamplerWeights sampled(const OnExecutor& on, const std::string& owner, const ModelSettings& settings, const std::string& what,
                         const std::function<SamplerWeights()>& read);
  SamplerWeights hold(SamplerWeights weights, MemoryLedger::Claim&& room) const;  // the claim ends with the weights
  bool is_busy(const OnExecutor& on, const HostedModel& model) const;             // it has a turn's room
  // For the weights of the base of critics, which stay in memory.
  void hold_base(const OnExecutor& on, const ModelSettings& settings, std::int64_t bytes, const std::string& what);

 private:
  friend class TurnRoom;
  struct Source {
    std::function<bool(const OnExecutor&)> free_one;
    std::function<std::int64_t(const OnExecutor&)> movable;
  };
  // Of the base, or of the base of critics (TrainingCommons::base_of).
  struct BaseRoom {
    std::unique_ptr<ModelMemoryPlanner> planner;  // null: not asked yet
    MemoryLedger::Claim room;
    std::int64_t weights = 0, rows = 0;  // bytes of those that `room` has; the most of a turn of its adapters
  };
  struct Books {
    BaseRoom base, values;
    MemoryLedger::Claim turn_extra;  // of turns, beyond turn_reserve_
    std::int64_t turn_used = 0;
    std::vector<const HostedModel*> busy;  // by the rooms of what runs
  };
  Books open_books();
  bool free_some(const OnExecutor& on);
  BaseRoom& room_of(const OnExecutor& on, const ModelSettings& settings);  // where the ledger has a limit

  TrainingCommons& commons_;
  bool limited_ = false;
  std::vector<Source> sources_;                                               // all were added before the first step
  MemoryLedger::Claim writing_, records_, results_, cutting_, turn_reserve_;  // held from the start to the end, and never changed
  OfExecutor<Books> books_;
};

// Of results that wait for their clients.
std::int64_t most_result_bytes(const TrainingBase& base);
// Of user_metadata, tags and custom losses, of all.
std::int64_t most_metadata_bytes(const TrainingBase& base);

}  // namespace lockstep
