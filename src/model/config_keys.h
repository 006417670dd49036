// Refuses keys of config.json that ask for arithmetic no family here computes. The error has the key, its value and what is allowed.
//   refuse_other_arithmetic(ConfigReader(json));
// Keys that only one family has are checked there (DecoderTraits::only). docs/models.md lists which keys are read, refused or ignored
// (tests/oracle/test_config_keys.py).
#pragma once
#include "model/config_reader.h"

namespace lockstep {

void refuse_other_arithmetic(const ConfigReader& config);

}  // namespace lockstep
