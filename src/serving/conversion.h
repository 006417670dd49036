// Converts any readable model (a GGUF file, or a Hugging Face folder in any supported storage type) to a Hugging Face folder. Any thread.
//   convert_model("model.gguf", "out", DType::f32, Overwrite::no);
// Knows no command line.
#pragma once
#include <string>

#include "base/output_path.h"
#include "numerics/profile.h"
#include "tensor/dtype.h"

namespace lockstep {

// config.json, the weights in `dtype` (f32 keeps every value; bf16 rounds to nearest even), and what the model has of tokenizer, chat template
// and generation_config.json. A tensor is in memory at a time. Errors: those of ModelReader and export_model_folder.
void convert_model(const std::string& from, const std::string& to, DType dtype, Overwrite overwrite);
// What a profile computes with, as a folder (SaveOptions::low_bit): under it the folder has the bits of the model that was read, and a folder that holds
// just that is written again byte for byte. Errors: those, and unsupported for a profile that no folder holds.
void pack_model(const std::string& from, const std::string& to, const Profile& profile, Overwrite overwrite);

// The model with indexers in the layers of `pattern` alone (model/index_pattern.h), whose weights are as they were. Errors: those, and of the pattern.
void convert_indexers(const std::string& from, const std::string& to, const std::string& pattern, DType dtype, Overwrite overwrite);

}  // namespace lockstep
