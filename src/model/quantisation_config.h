// Checks `quantization_config` of a config.json against the low-bit formats that model folders may use (checkpoint/stored_tensor.h). How a tensor is
// stored follows from its dtype and its neighbours in the file; the config is read only to refuse what would be computed differently. Example:
// {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": {"weights": {"num_bits": 4, ...}}}}
//   check_quantisation(ConfigReader(json));
#pragma once
#include "model/config_reader.h"

namespace lockstep {

// Errors: invalid_argument or unsupported with the key, its value and what is allowed. A config without the key is allowed.
void check_quantisation(const ConfigReader& config);

}  // namespace lockstep
