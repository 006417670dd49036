#include "planning/file_formats.h"

#include <algorithm>
#include <array>

#include "checkpoint/gguf_types.h"
#include "checkpoint/stored_form.h"
#include "model/quantisation_config.h"
#include "model/stored_names.h"
#include "numerics/mxfp4.h"

namespace lockstep {
namespace {
constexpr const char* kMatrix = "X.weight";

// A way of storing weights that decides which profiles have a place for them.
struct Form {
  StoredAs as;
  SafetensorsType type;  // of numbers, else of scales
  bool scales_fit;
  const char* scales;  // what that asks of them; null: nothing, they are so whatever the values
};
constexpr const char* kPowers = "powers of two from 2^-90 on";
constexpr std::array kForms = {
    Form{StoredAs::numbers, SafetensorsType::f32, true, nullptr},  Form{StoredAs::numbers, SafetensorsType::f16, true, nullptr},
    Form{StoredAs::numbers, SafetensorsType::bf16, true, nullptr}, Form{StoredAs::int4, SafetensorsType::bf16, true, "bf16 numbers"},
    Form{StoredAs::int4, SafetensorsType::f32, false, "others"},   Form{StoredAs::fp8, SafetensorsType::f32, true, kPowers},
    Form{StoredAs::fp8, SafetensorsType::f32, false, "others"},    Form{StoredAs::mxfp8, SafetensorsType::u8, true, kPowers},
    Form{StoredAs::mxfp4, SafetensorsType::u8, true, kPowers},
};

// Whether files may hold the tensor so.
bool may_hold(const FileTensor& file, StoredAs as) {
  const bool of_experts = file.shape.size() == 3;
  switch (as) {
    case StoredAs::int4:
      return file.shape.size() == 2;
    case StoredAs::fp8:
    case StoredAs::mxfp8:
      return file.shape.size() == 2 || of_experts;
    case StoredAs::mxfp4:
      return of_experts && file.shape[1] % kMxfp4Group == 0;
    case StoredAs::numbers:
      break;
  }
  return true;
}

// The tensors of matrices that `keep` takes. Of parameters with many items, as experts, those of the first: the others are stored alike.
template <class F>
std::vector<const FileTensor*> tensors_of(const Manifest& manifest, const F& keep) {
  std::vector<const FileTensor*> found;
  for (const FileTensor& file : manifest.files())
    if (file.pieces[0].item == 0 && keep(manifest.parameter(file.pieces[0].parameter))) found.push_back(&file);
  return found;
}

bool is_linear(const Parameter& p) { return p.layout == ParameterLayout::packed && p.trained && !p.exact && !p.tied && p.split != ParameterSplit::vocabulary; }
bool is_expert(const Parameter& p) { return is_linear(p) && p.split == ParameterSplit::experts; }

Json row(const Model& model, const std::vector<const FileTensor*>& tensors, const Form& form, const char* of) {
  Json names = Json::array();
  for (const Profile& profile : profiles()) {
    if (profile.study || !model.profile_refusal(profile).empty()) continue;
    const auto rounded = [&](const FileTensor* file) {
      return form_of(*file, form.as, form.type, form.scales_fit).is_rounded(*file, model.manifest(), profile);
    };
    if (std::none_of(tensors.begin(), tensors.end(), rounded)) names.push_back(profile.name);
  }
  Json json = {{"format", StoredForm{.as = form.as, .type = form.type}.name()}, {"scales", nullptr}, {"of", of}, {"profiles", names}};
  if (form.scales) json["scales"] = form.scales;
  return json;
}
}  // namespace

Json few_bits_json() {
  const auto format = [](StoredAs as, SafetensorsType scales, LowBitFormat low_bit, Json others, Json tensors, const char* numbers) -> Json {
    const StoredForm form{.as = as, .type = scales};
    return {{"name", form.name()},
            {"bits_a_weight", form.bits_a_weight()},
            {"tensors", std::move(tensors)},
            {"numbers", numbers},
            {"quantization_config", quantisation_of(low_bit, std::move(others))}};
  };
  const auto tensor = [](const std::string& name, const char* holds) -> Json { return {{"name", name}, {"holds", holds}}; };
  const Int4Names int4(kMatrix);
  const Mxfp4Names mxfp4("X");
  const Json none = Json::array();
  return Json::array(
      {format(StoredAs::int4, SafetensorsType::bf16, LowBitFormat::int4, none,
              {tensor(int4.numbers, "I32, eight integers a word"), tensor(int4.scales, "BF16, F16 or F32, one a group of 32 inputs"),
               tensor(int4.shape, "I64 or I32, outputs and inputs")},
              "integer × scale in fp32, integers from -8 to 7"),
       format(StoredAs::fp8, SafetensorsType::f32, LowBitFormat::fp8, none,
              {tensor(kMatrix, "F8_E4M3"), tensor(block_scales_of(kMatrix), "F32, BF16 or F16, one a block of 128 x 128, which need not divide the matrix")},
              "number × scale in fp32"),
       format(StoredAs::mxfp8, SafetensorsType::u8, LowBitFormat::mxfp8, none,
              {tensor(kMatrix, "F8_E4M3"), tensor(block_scales_of(kMatrix), "U8 or F8_E8M0, one a group of 32 inputs")}, "number × 2^(scale - 127), exactly"),
       format(StoredAs::mxfp4, SafetensorsType::u8, LowBitFormat::mxfp4, mxfp4_unconverted(),
              {tensor(mxfp4.blocks, "U8 [experts, outputs, inputs / 32, 16], two numbers in E2M1 a byte"),
               tensor(mxfp4.scales, "U8 [experts, outputs, inputs / 32]")},
              "number × 2^(scale - 127), exactly")});
}

Json gguf_types_json() {
  Json types = Json::array();
  for (const GgufType* type : readable_gguf_types()) types.push_back({{"type", std::string(type->name)}, {"bits_a_weight", type->bits_a_weight()}});
  return types;
}

Json exact_under_json(const Model& model) {
  const auto all = tensors_of(model.manifest(), [](const Parameter&) { return true; });
  const auto linear = tensors_of(model.manifest(), is_linear), experts = tensors_of(model.manifest(), is_expert);
  Json rows = Json::array();
  for (const Form& form : kForms) {
    if (form.as == StoredAs::numbers) {
      rows.push_back(row(model, all, form, "all tensors"));
      continue;
    }
    const auto held = [&](std::vector<const FileTensor*> tensors) {
      std::erase_if(tensors, [&](const FileTensor* file) { return !may_hold(*file, form.as); });
      return tensors;
    };
    const auto of_experts = held(experts), of_linear = held(linear);
    if (!of_experts.empty()) rows.push_back(row(model, of_experts, form, "experts alone"));
    if (of_linear.size() > of_experts.size()) rows.push_back(row(model, of_linear, form, "linear layers"));
  }
  return rows;
}

}  // namespace lockstep
