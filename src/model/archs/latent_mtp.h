// Adds the layer of multi-token prediction to a model of a family with latent attention and routed experts, if config.json has one. The layer has its
// own indexer where the family has indexers, and routed experts even where the first layers have none.
// Keys: num_nextn_predict_layers (1: one layer; more: the files' further ones are ignored), index_share_for_mtp_iteration (false: no depth uses another's
// keys), normed_state_for_mtp_iteration (false: a depth is given the output of the one before without its norm).
//   add_latent_mtp(*model, attention, sparse);
#pragma once
#include "model/blocks/decoder.h"
#include "model/blocks/latent_attention.h"
#include "model/blocks/routed_mlp.h"

namespace lockstep {

void add_latent_mtp(DecoderModel& model, LatentAttention::Settings attention, RoutedMlp::Settings experts);

}  // namespace lockstep
