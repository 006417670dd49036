// The base model of a training server, with its executor, memory ledger and folders. All models of clients start from it. Plain values.
//   base.is_called("countdown-glm"); base.is_critic("countdown-glm:value");
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

// Appended to a base model's name it names that model with a value head, for critics and reward models.
inline constexpr std::string_view kCriticSuffix = ":value";

struct TrainingBase : TrainedBase {
  // Most clients send one gradient a step, and may declare their prompts (host/loss_inputs.h). TrainerOptions::kept is shared by all models.
  TrainingBase() { options = {.accumulate = true, .mostly_one_call = true, .share_prefixes = true, .declared_prefixes = true}; }

  std::string name;                  // in answers
  std::vector<std::string> names;    // its own and aliases; clients may use them, and see them in lists
  std::vector<std::string> folders;  // names that clients may use but that lists do not show
  std::string folder;
  bool is_called(const std::string& what) const {
    return std::find(names.begin(), names.end(), what) != names.end() || std::find(folders.begin(), folders.end(), what) != folders.end();
  }
  bool is_critic(const std::string& what) const { return what.ends_with(kCriticSuffix) && !is_called(what); }
  std::shared_ptr<Executor> executor;
  std::function<OpenedModel()> open_values;  // the same model with a value head (open_value_model)
  std::shared_ptr<MemoryLedger> ledger;      // the limit of all memory; null: a service makes one without a limit
};

}  // namespace lockstep
