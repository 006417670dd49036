// The registry of losses that clients traced (losses/custom_loss.h). Each belongs to a session and is stored before its name can be used, until the
// session is removed. Its memory counts with what clients attach to objects (host/metadata_room.h). It has its own lock. Any thread.
//   const std::string request = losses.create(owner, session, 0, document, encode); losses.find(owner, session, batch.loss)->run(inputs);
#pragma once
#include <map>
#include <memory>
#include <string>

#include "base/guarded.h"
#include "host/loss_inputs.h"
#include "host/training_commons.h"
#include "losses/custom_loss.h"

namespace lockstep {

class Sessions;

class CustomLosses {
 public:
  // Loads the store's losses.
  CustomLosses(TrainingCommons& commons, Sessions& sessions);

  // Whether clients' losses are allowed.
  bool run_here() const { return commons_.options.custom_losses; }
  // `document`: {"name", "inputs", "graph"}. The request's result is the loss's id, which a batch's loss "custom" names as loss_id.
  // Errors: not_found, cancelled, resource_exhausted; what is wrong in the document is the request's result.
  std::string create(const std::string& owner, const std::string& session, std::int64_t number, TrainingJson document, const Encode<std::string>& encode);
  // Errors: invalid_argument, not_found.
  std::shared_ptr<const CustomLoss> find(const std::string& owner, const std::string& session, const LossRequest& wanted) const;
  void remove_of(const std::string& session);
  void each_bytes(const MetadataRoom::Count& count) const;

 private:
  struct OwnedLoss {
    std::string owner, session;
    std::shared_ptr<const CustomLoss> loss;
  };

  TrainingCommons& commons_;
  Sessions& sessions_;
  Guarded<std::map<std::string, OwnedLoss>> losses_;  // by id
};

}  // namespace lockstep
