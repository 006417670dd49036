// Which mechanisms a model has, for settings that do nothing without them. Needs config.json alone. Any thread.
//   if (!mechanisms_of(settings).indexer) ...
#pragma once
#include "serving/loading.h"

namespace lockstep {

struct Mechanisms {
  bool indexer = true;      // parameters that choose keys, and that their own loss trains
  bool router_bias = true;  // a correction of the router's that training moves by loads
};

// Of settings.model. All of them where its config.json cannot be read: whoever opens the model says what is wrong with it.
Mechanisms mechanisms_of(const RuntimeSettings& settings);

}  // namespace lockstep
