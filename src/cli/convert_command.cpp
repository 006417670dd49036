// `lockstep convert FILE.gguf OUT`: a Hugging Face folder of a GGUF file, or of another model in other types.
#include <cstdio>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/shipped.h"
#include "serving/conversion.h"

namespace lockstep {

int convert_command(const Arguments& arguments) {
  std::string from, to, dtype = "f32", profile;
  OptionTable table("convert", "Writes a Hugging Face folder of a GGUF file, or of another model folder: config.json, safetensors, tokenizer, chat template.",
                    {"lockstep convert model.gguf OUT", "lockstep convert model.gguf OUT --dtype bf16", "lockstep convert DIR OUT --profile cpu-int4-experts"});
  table.positional("FROM", &from, true, "GGUF file, model folder, or the name of a shipped model: countdown-glm, agent-glm");
  table.output_folder("OUT", &to, "Folder to write").positional().required();
  table.choice("dtype", &dtype, {"f32", "bf16"}, "Of the weights: f32 keeps every value of the file, bf16 rounds to nearest even");
  table.text("profile", &profile, "NAME",
             "In place of --dtype: what this profile computes with, for example cpu-int4-experts or cpu-fp8-base; matrices of 4-bit integers are packed as "
             "compressed-tensors packs them, those of fp8 and mxfp8 stand in E4M3 with their scales beside, the rest is bf16");
  if (!table.parse(arguments)) return kExitOk;
  if (!profile.empty() && table.given("dtype")) throw UsageError(fmt::format("dtype is {} and profile is {}, allowed is one of the two", dtype, profile));
  if (profile.empty()) convert_model(shipped("models", from), to, dtype == "bf16" ? DType::bf16 : DType::f32, table.overwrite());
  else pack_model(shipped("models", from), to, profile_by_name(profile), table.overwrite());
  std::printf("%s\n", to.c_str());
  return kExitOk;
}

}  // namespace lockstep
