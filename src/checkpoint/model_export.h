// Exports models and adapters to a path that the user named; other files there are never lost (base/output_path.h). Any thread.
//   export_model_folder("out", *model, masters, {.dtype = DType::bf16}, Overwrite::no);
#pragma once
#include <string>

#include "base/output_path.h"
#include "checkpoint/model_folder.h"
#include "model/adapter.h"

namespace lockstep {

// As save_model_folder and save_adapter_folder, with the user's `overwrite` in place of theirs. Errors: those of OutputFolder too.
void export_model_folder(const std::filesystem::path& path, const Model& model, const WeightImages& masters, const SaveOptions& options, Overwrite overwrite);
// The weights of a model's files, a tensor at a time.
void export_model_folder(const std::filesystem::path& path, const ModelReader& reader, const SaveOptions& options, Overwrite overwrite);
void export_adapter_folder(const std::filesystem::path& path, const AdapterLayout& layout, const WeightImages& images, const std::string& base,
                           Overwrite overwrite);

}  // namespace lockstep
