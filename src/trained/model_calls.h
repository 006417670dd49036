// The calls that process 0 makes and the others follow (trained/led_model.h), as bytes: a number, then the call's values. Of one build.
#pragma once
#include "base/byte_record.h"
#include "trained/led_model.h"

namespace lockstep {

enum class ModelCall : std::uint8_t {
  open,
  make,
  forward_backward,
  begin,
  add,
  finish,
  drop,
  score,
  optim_step,
  sampler_weights,
  master_images,
  state,
  restore,
  work,
  forget,
};

void put_source(ByteWriter& out, const ModelSource& source);
ModelSource taken_source(ByteReader& in);
// What is not a plain value is left out: kept passes are of one rank.
void put_options(ByteWriter& out, const TrainerOptions& options);
TrainerOptions taken_options(ByteReader& in);
void put_settings(ByteWriter& out, const TrainedSettings& settings);
TrainedSettings taken_settings(ByteReader& in);
void put_state(ByteWriter& out, const TrainerState& state);
TrainerState taken_state(ByteReader& in);

}  // namespace lockstep
