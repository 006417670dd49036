// Keys of config.json that no family's forward reads, and that would change what a model computes if they said something else: a file
// that asks for other arithmetic is refused with the key, the value and what is allowed, and not computed without it. Keys of one family alone
// are its own (DecoderTraits::only). Which keys a family reads, which are refused and which decide nothing is the table of docs/models.md
// (tests/oracle/test_config_keys.py).
//   refuse_other_arithmetic(ConfigReader(json));
#pragma once
#include "model/config_reader.h"

namespace lockstep {

void refuse_other_arithmetic(const ConfigReader& config);

}  // namespace lockstep
