// Refuses config.json keys that ask for arithmetic that no family here computes, with the key, the value and what is allowed.
//   refuse_other_arithmetic(ConfigReader(json));
// Keys of one family alone are that family's (DecoderTraits::only). docs/models.md lists which keys are read, refused or without effect
// (tests/oracle/test_config_keys.py).
#pragma once
#include "model/config_reader.h"

namespace lockstep {

void refuse_other_arithmetic(const ConfigReader& config);

}  // namespace lockstep
