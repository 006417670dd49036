// The layer of multi-token prediction of families of latent attention and routed experts, as config.json asks for it: with an indexer of its own
// where the family has them, and with experts, whatever the first layers have.
// Key: num_nextn_predict_layers (1: one; other numbers: what files hold of them is passed over).
//   add_latent_mtp(*model, attention, sparse);
#pragma once
#include "model/blocks/decoder.h"
#include "model/blocks/latent_attention.h"
#include "model/blocks/routed_mlp.h"

namespace lockstep {

void add_latent_mtp(DecoderModel& model, LatentAttention::Settings attention, RoutedMlp::Settings experts);

}  // namespace lockstep
