// Checks `quantization_config` of a config.json against the low-bit formats that model folders may use (checkpoint/stored_tensor.h). How a tensor is
// stored follows from its dtype and its neighbours in the file; the config is read only to refuse what would be computed differently. Example:
// {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": {"weights": {"num_bits": 4, ...}}}}
//   check_quantisation(ConfigReader(json));
#pragma once
#include "model/config_reader.h"
#include "numerics/low_bit.h"

namespace lockstep {

// Errors: invalid_argument or unsupported with the key, its value and what is allowed. A config without the key is allowed.
void check_quantisation(const ConfigReader& config);
// The key for a folder with weights in this format, as its own library has it: compressed-tensors, DeepSeek's folders, SGLang for MXFP8 (whose copy for
// gradients stands in no file), gpt-oss. `others`: names of the linear layers that are not in it.
Json quantisation_of(LowBitFormat format, Json others);

}  // namespace lockstep
