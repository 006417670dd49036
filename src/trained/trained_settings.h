// How a model is trained: all of its parameters or an adapter, and by which optimizer. Plain values.
//   TrainedSettings settings{.rank = 8, .seed = 1};
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

// Fixed when the model is made.
struct TrainedSettings {
  std::int64_t rank = 0;  // of an adapter, 1 to 256; 0: all parameters are trained
  double alpha = 32;
  bool train_attn = true, train_mlp = true, train_unembed = true;  // which matrices have an adapter
  std::optional<std::uint64_t> seed;                               // of an adapter's initial weights; required for one
  bool base_only = false;                                          // the frozen base, forward only
  std::string optimizer = "adamw";                                 // train/optimizers
  std::string init_method = "kaiming";                             // of an adapter: kaiming, nora
  std::uint64_t kept_owner = 0;                                    // whose kept forwards it reads (KeptForwards::Root); of this process, never stored
};

}  // namespace lockstep
