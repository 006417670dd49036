#include "planning/shape_catalog.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {
namespace {
// "accounts/x/models/qwen3p5-35b-a3b", "Qwen/Qwen3.5-35B-A3B" and "Qwen3.5 35B A3B" are one name: the last part of the path, letters and
// digits alone, a p between digits taken for a point.
std::string plain_name(std::string_view name) {
  while (!name.empty() && name.back() == '/') name.remove_suffix(1);
  name = name.substr(name.rfind('/') + 1);
  const auto digit = [&](std::size_t i) { return i < name.size() && name[i] >= '0' && name[i] <= '9'; };
  std::string plain;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i] >= 'A' && name[i] <= 'Z' ? static_cast<char>(name[i] - 'A' + 'a') : name[i];
    const bool point = c == 'p' && i > 0 && digit(i - 1) && digit(i + 1);
    if (!point && ((c >= 'a' && c <= 'z') || digit(i))) plain += c;
  }
  return plain;
}
}  // namespace

std::string_view trainer_mode(ShapeMode mode) {
  return mode == ShapeMode::policy ? "POLICY_TRAINER" : mode == ShapeMode::lora ? "LORA_TRAINER" : "FORWARD_ONLY";
}
std::string_view shape_mode_name(ShapeMode mode) { return mode == ShapeMode::policy ? "policy" : mode == ShapeMode::lora ? "lora" : "reference"; }

ShapeCatalog ShapeCatalog::published() {
  ShapeCatalog catalog;
  catalog.add(published_shapes_toml(), "shapes/catalog.toml");
  return catalog;
}

void ShapeCatalog::add(std::string_view toml, const std::string& label) {
  ShapeCatalog with = *this;
  with.add_parsed(toml, label);
  *this = std::move(with);
}

void ShapeCatalog::put(const TrainingShape& shape) {
  if (std::none_of(models_.begin(), models_.end(), [&](const ShapeModel& m) { return m.id == shape.model; }))
    models_.push_back({.id = shape.model, .name = shape.model});
  const auto place = std::find_if(shapes_.begin(), shapes_.end(), [&](const TrainingShape& s) { return s.id == shape.id; });
  if (place == shapes_.end()) shapes_.push_back(shape);
  else *place = shape;
}

const TrainingShape& ShapeCatalog::shape(const std::string& id) const {
  std::vector<std::string> ids;
  for (const TrainingShape& shape : shapes_) {
    if (shape.id == id) return shape;
    ids.push_back(shape.id);
  }
  fail(ErrorCode::not_found, "there is no training shape '{}'{}", id.substr(0, 100), did_you_mean(id, ids));
}

const ShapeModel* ShapeCatalog::find_model(const std::string& name) const {
  const std::string plain = plain_name(name);
  for (const ShapeModel& m : models_) {
    if (m.id == name) return &m;
    if (plain.empty()) continue;
    if (plain_name(m.id) == plain || plain_name(m.name) == plain) return &m;
    for (const std::string& other : m.names)
      if (plain_name(other) == plain) return &m;
  }
  return nullptr;
}

const ShapeModel& ShapeCatalog::model(const std::string& name) const {
  if (const ShapeModel* found = find_model(name)) return *found;
  std::vector<std::string> ids;
  for (const ShapeModel& m : models_) ids.push_back(m.id);
  std::string lower = name;
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  fail(ErrorCode::not_found, "the catalog of training shapes has no model '{}', only {}{}", name.substr(0, 100), fmt::join(ids, ", "),
       did_you_mean(lower, ids));
}

const Accelerator& ShapeCatalog::accelerator(const std::string& name) const {
  std::vector<std::string> names;
  const std::string plain = plain_name(name);
  for (const Accelerator& a : accelerators_) {
    if (a.id == name) return a;
    names.push_back(a.id);
    for (std::size_t at = 0; at < a.id.size();) {  // "B200" of NVIDIA_B200_180GB
      const std::size_t end = std::min(a.id.find('_', at), a.id.size());
      names.push_back(a.id.substr(at, end - at));
      at = end + 1;
    }
  }
  for (const Accelerator& a : accelerators_)
    if (!plain.empty() && plain_name(a.id).find(plain) != std::string::npos) return a;
  std::vector<std::string> ids;
  for (const Accelerator& a : accelerators_) ids.push_back(a.id);
  fail(ErrorCode::not_found, "there is no accelerator '{}', known are {}{}", name.substr(0, 100), fmt::join(ids, ", "), did_you_mean(name, names));
}

std::optional<ShapeFit> ShapeCatalog::fit(const TrainingShape& shape, std::int64_t lora_rank) const {
  const ShapeModel& of = model(shape.model);
  if (!of.counted || shape.context == 0 || shape.accelerators == 0 || shape.accelerator.empty()) return std::nullopt;
  const std::int64_t memory = accelerator(shape.accelerator).memory, capacity = memory > 0 ? memory : std::int64_t{1} << 60;
  const ShapeWork work{.mode = shape.mode, .context = shape.context, .lora_rank = lora_rank, .int4_experts = shape.int4_experts};
  const ModelSizes& sizes = *of.sizes();
  return shape.layout ? fit_of(sizes, work, shape.accelerators, capacity, *shape.layout) : first_fit(sizes, work, shape.accelerators, capacity);
}

}  // namespace lockstep
