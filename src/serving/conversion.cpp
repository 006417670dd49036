#include "serving/conversion.h"

#include "checkpoint/model_export.h"
#include "checkpoint/model_source.h"
#include "model/index_pattern.h"

namespace lockstep {

static void convert_with(const std::string& from, const std::string& to, SaveOptions options, Overwrite overwrite,
                         std::shared_ptr<const ModelReader> reader = nullptr) {
  if (!reader) reader = ModelReader::open(from);
  if (open_folder_files(from)->has("tokenizer.json")) options.tokenizer_files_from = from;
  export_model_folder(to, *reader, options, overwrite);
}

void convert_model(const std::string& from, const std::string& to, DType dtype, Overwrite overwrite) {
  convert_with(from, to, SaveOptions{.dtype = dtype}, overwrite);
}

void pack_model(const std::string& from, const std::string& to, const Profile& profile, Overwrite overwrite) {
  check_low_bit_profile(profile);  // told before a large file is opened
  convert_with(from, to, SaveOptions{.low_bit = &profile}, overwrite);
}

void convert_indexers(const std::string& from, const std::string& to, const std::string& pattern, DType dtype, Overwrite overwrite) {
  const std::shared_ptr<const Model> whole = ModelReader::open(from)->model();
  const std::shared_ptr<const Model> model = model_with_indexers(*whole, layers_of_pattern(*whole, pattern), {});
  convert_with(from, to, SaveOptions{.dtype = dtype}, overwrite, std::make_shared<const ModelReader>(from, model, ModelFiles(from)));
}

}  // namespace lockstep
