#include "serving/conversion.h"

#include "checkpoint/model_export.h"
#include "checkpoint/model_source.h"

namespace lockstep {

static void convert_with(const std::string& from, const std::string& to, SaveOptions options, Overwrite overwrite) {
  const std::shared_ptr<const ModelReader> reader = ModelReader::open(from);
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

}  // namespace lockstep
