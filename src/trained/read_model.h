// A model that is only read, through the training forward of all its ranks, wherever they are: as it is, or under an adapter's folder.
//   auto model = make_read_model(base, "runs/r/export"); model->score(data);
#pragma once
#include <filesystem>

#include "trained/trained_model.h"

namespace lockstep {

// `base` outlives it, and has its weights. `adapter`: PEFT's folder of one over them; empty: none. Errors: those of make_trained_model and load_adapter_folder.
std::unique_ptr<TrainedModel> make_read_model(const TrainedBase& base, const std::filesystem::path& adapter);

}  // namespace lockstep
