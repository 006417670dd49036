// Which mechanisms a model has, for settings that do nothing without them. Needs config.json alone. Any thread.
//   if (!mechanisms_of(settings).indexer) ...
#pragma once
#include "serving/loading.h"

namespace lockstep {

struct Mechanisms {
  bool indexer = true;      // parameters that choose keys, and that their own loss trains
  bool router_bias = true;  // a correction bias of the router, which training moves by expert loads
};

// The mechanisms of settings.model. If its config.json cannot be read, all of them: the error is reported when the model is opened.
Mechanisms mechanisms_of(const RuntimeSettings& settings);

}  // namespace lockstep
