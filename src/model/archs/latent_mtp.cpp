#include "model/archs/latent_mtp.h"

namespace lockstep {

void add_latent_mtp(DecoderModel& model, LatentAttention::Settings attention, RoutedMlp::Settings experts) {
  model.reader().boolean("index_share_for_mtp_iteration", true);  // of the layer; where there is none it says nothing
  if (model.reader().integer("num_nextn_predict_layers", 0, 4096, 0) != 1) return;
  if (attention.indexer) attention.indexer->owners = {true};
  experts.sparse = {true};
  model.add_mtp([&](Manifest& m, const std::string& prefix) { return std::make_unique<LatentAttention>(m, 0, prefix + "self_attn.", attention); },
                [&](Manifest& m, const std::string& prefix, ModelFacts& facts) { return std::make_unique<RoutedMlp>(m, 0, prefix + "mlp.", experts, facts); });
}

}  // namespace lockstep
