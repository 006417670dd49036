// Calls of a model that several processes train (trained/led_model.h), as bytes: a number for the kind of call, then its values. All processes run
// the same build.
//   put_settings(out, {.rank = 8}); const TrainedSettings settings = taken_settings(in);
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
  restore,
  work,
  forget,
  evaluate,
  state_image,
  rank_uses,
  begin_shares,
  finish_shares,
  restore_shares,
  teacher,
  // Of a layer beside the model of this number (trained/trained_layer.h); none but these comes behind.
  make_layer,
  layer_forward_backward,
  layer_optim_step,
  layer_weights,
  layer_images,
  layer_state,
  layer_restore,
  forget_layer,
};
inline bool is_layer_call(ModelCall call) { return call >= ModelCall::make_layer; }

// For destructors: tells the others that what has this number is gone; an error is logged.
void tell_gone(ProcessMail& mail, ModelCall call, std::uint64_t number) noexcept;

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
