#include "model/archs/latent_mtp.h"

namespace lockstep {

void add_latent_mtp(DecoderModel& model, LatentAttention::Settings attention, RoutedMlp::Settings experts) {
  // Of the layer; where there is none they say nothing.
  for (const char* key : {"index_share_for_mtp_iteration", "normed_state_for_mtp_iteration"}) model.reader().boolean(key, true);
  if (model.reader().integer("num_nextn_predict_layers", 0, 4096, 0) != 1) return;
  if (attention.indexer) attention.indexer->owners = {true};
  experts.sparse = {true};
  model.add_mtp([&](Manifest& m, const std::string& prefix) { return std::make_unique<LatentAttention>(m, 0, prefix + "self_attn.", attention); },
                [&](Manifest& m, const std::string& prefix, ModelFacts& facts) { return std::make_unique<RoutedMlp>(m, 0, prefix + "mlp.", experts, facts); });
}

}  // namespace lockstep
