#include "service/training/trained_model.h"

#include "base/error.h"

namespace lockstep {

std::unique_ptr<TrainedModel> make_trained_model(const TrainingBase& base, const ModelSettings& settings) {
  if (settings.base_only) fail(ErrorCode::unsupported, "base_only is true, allowed is false");
  if (settings.rank > 0) fail(ErrorCode::unsupported, "lora_config.rank is {}, allowed is 0 (all parameters)", settings.rank);
  return make_full_model(base);
}

}  // namespace lockstep
