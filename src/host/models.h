// The registry of models that clients train: owners, limits, records in the store. Its lock guards the map alone, and nothing waits for a disk under
// it but the writing of a record; each model has its own lock (host/hosted_model.h). Owners do not see each other's. Any thread.
//   const std::shared_ptr<HostedModel> model = models.at(owner, id); model->record();
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/guarded.h"
#include "host/acknowledged_numbers.h"
#include "host/hosted_model.h"
#include "host/recent_texts.h"
#include "host/training_commons.h"

namespace lockstep {

class Models {
 public:
  // Loads the store's records.
  explicit Models(TrainingCommons& commons);

  // Error not_found; of one that could not be made, with the reason.
  std::shared_ptr<HostedModel> at(const std::string& owner, const std::string& id) const;
  ModelRecord find(const std::string& owner, const std::string& id) const { return at(owner, id)->record(); }
  std::vector<ModelRecord> all(const std::string& owner) const;  // newest first
  // Anyone's. Null: there is none.
  std::shared_ptr<HostedModel> any(const std::string& id) const;
  std::vector<std::shared_ptr<HostedModel>> every() const;
  std::vector<std::shared_ptr<HostedModel>> of_session(const std::string& session) const;

  // Checks the limits before one more is made. Error resource_exhausted.
  void check_room(const std::string& owner) const;
  // Errors: resource_exhausted, already_exists.
  void add(const std::shared_ptr<HostedModel>& model);
  // Removes it, with its record, numbers and state on disk.
  void remove(const HostedModel& model);
  // Removes it, and remembers the reason.
  void remove_unmade(const HostedModel& model, const std::string& why);
  // Stores the record, synced to the disk: the caller must hold no lock.
  void store(const ModelRecord& record);
  // Notes that an operation's number is answered; errors: io. Under the model's lock.
  void acknowledge(const HostedModel& model, ModelState& state, std::int64_t sequence);
  // Notes whether there are gradients that no step has used, before the first is answered; errors: io. Under the model's lock.
  void note_gradients(const HostedModel& model, bool open) { acknowledged_.note_gradients(folder_of_id(model.id), open); }
  std::filesystem::path folder(const HostedModel& model) const;  // of its state, while it is not in memory
  void each_metadata(const MetadataRoom::Count& count) const;

 private:
  struct State {
    explicit State(const KeyLimit& unmade) : unmade(unmade) {}
    std::map<std::string, std::shared_ptr<HostedModel>> models;
    RecentTexts unmade;  // model -> why it could not be made
  };
  void check_room(const State& state, const std::string& owner) const;

  TrainingCommons& commons_;
  AcknowledgedNumbers acknowledged_;
  Guarded<State> state_;
};

}  // namespace lockstep
