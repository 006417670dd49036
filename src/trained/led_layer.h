// Of process 0: the layer of multi-token prediction beside a model that several processes train (trained/led_model.h). Each call is told to the others, by the
// model's number, and made here.
//   auto layer = make_led_layer({mail, number, own}, masters, training, options); layer->forward_backward(data, false);
#pragma once
#include "parallel/mail.h"
#include "trained/trained_layer.h"

namespace lockstep {

struct LedTrunk {
  ProcessMail& mail;
  std::uint64_t number;  // the others have the model by it
  TrainedModel& own;     // this process's part of it
};

std::unique_ptr<TrainedLayer> make_led_layer(const LedTrunk& trunk, const WeightImages& masters, const MtpTraining& training, const TrainerOptions& options);

}  // namespace lockstep
