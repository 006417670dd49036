// The base model of a training server, with its executor, memory ledger and folders. All models of clients start from it. Plain values.
#pragma once
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory_ledger.h"
#include "host/training_records.h"
#include "model/kept_forwards.h"
#include "train/kept_passes.h"
#include "trained/trained_model.h"

namespace lockstep {

// A base model's name with this behind it is that model with a value head, of which critics and reward models are made.
inline constexpr std::string_view kCriticSuffix = ":value";

struct TrainingBase : TrainedBase {
  // Most clients make one gradient a step. TrainerOptions::kept: of all models' forwards.
  TrainingBase() { options = {.accumulate = true, .mostly_one_call = true, .share_prefixes = true}; }

  std::string name;                  // in answers
  std::vector<std::string> names;    // that clients may call it by, and are told: its own, aliases
  std::vector<std::string> folders;  // that they may call it by, too, where they know them; not told
  std::string folder;
  bool is_called(const std::string& what) const {
    return std::find(names.begin(), names.end(), what) != names.end() || std::find(folders.begin(), folders.end(), what) != folders.end();
  }
  bool is_critic(const std::string& what) const { return what.ends_with(kCriticSuffix) && !is_called(what); }
  std::shared_ptr<Executor> executor;
  std::function<OpenedModel()> open_values;  // the same model with a value head (open_value_model); null: there are no critics
  std::shared_ptr<MemoryLedger> ledger;      // what all of it may take; null: a service makes one without a limit
};

}  // namespace lockstep
