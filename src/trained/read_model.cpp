#include "trained/read_model.h"

#include <utility>

#include "checkpoint/adapter_folder.h"

namespace lockstep {

std::unique_ptr<TrainedModel> make_read_model(const TrainedBase& base, const std::filesystem::path& adapter) {
  if (adapter.empty()) return make_trained_model(base, {.base_only = true});
  LoadedAdapter read = load_adapter_folder(adapter, base.opened.model->manifest());
  const AdapterSettings& own = read.layout->settings();
  std::unique_ptr<TrainedModel> model = make_trained_model(
      base, {.rank = own.rank, .alpha = own.alpha, .train_attn = own.attention, .train_mlp = own.mlp, .train_unembed = own.unembedding, .seed = 0});
  TrainerState state = state_of(*model);
  state.masters = std::move(read.images);
  model->restore(state);
  return model;
}

}  // namespace lockstep
