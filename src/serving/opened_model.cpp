// The weights of an opened model: in fp32, or as forwards compute with them.
#include <algorithm>
#include <map>

#include "base/free_memory.h"
#include "base/log.h"
#include "checkpoint/model_reader.h"
#include "checkpoint/reading_memory.h"
#include "model/compute_copy.h"
#include "serving/loading.h"

namespace lockstep {

namespace {
// By ParameterId of `model`: the other model's parameter that is, bit for bit, the same one; null where there is none. A table that is the head too has
// another layout.
std::vector<const Buffer*> alike(const Model& model, const SharedWeights& shared, const Profile& profile) {
  const std::vector<Parameter>& others = shared.model->manifest().parameters();
  std::map<std::string_view, std::size_t> by_name;
  for (std::size_t i = 0; i < others.size(); ++i) by_name.emplace(others[i].name, i);
  std::vector<const Buffer*> found;
  for (const Parameter& p : model.manifest().parameters()) {
    found.push_back(nullptr);
    const auto other = by_name.find(p.name);
    if (other == by_name.end()) continue;
    const Parameter& o = others[other->second];
    if (o.layout == p.layout && o.count == p.count && o.outputs == p.outputs && o.inputs == p.inputs && weight_bits(o, profile) == weight_bits(p, profile) &&
        compute_dtype(o, profile) == compute_dtype(p, profile))
      found.back() = &shared.weights->parameters[other->second];
  }
  return found;
}
}  // namespace

LoadedBytes loaded_bytes(const Model& model, const Profile& profile) {
  LoadedBytes bytes;
  bytes.masters = masters_reading_bytes(model.manifest());
  for (const Parameter& p : model.manifest().parameters()) bytes.masters += p.size() * static_cast<std::int64_t>(sizeof(float));
  bytes.weights = computed_bytes(model.manifest(), profile);
  return bytes;
}

WeightImages images_by_name(const ModelReader& reader, const Model& model, const std::function<bool(ParameterId)>& wanted) {
  const Manifest& manifest = model.manifest();
  WeightImages images;
  for (const Parameter& p : manifest.parameters()) images.emplace_back(wanted(std::ssize(images)) ? static_cast<std::size_t>(p.size()) : std::size_t{0}, 0.0f);
  std::map<std::string_view, const FileTensor*> by_name;
  for (const FileTensor& file : manifest.files())
    if (std::all_of(file.pieces.begin(), file.pieces.end(), [&](const Piece& piece) { return wanted(piece.parameter); })) by_name.emplace(file.name, &file);
  for (const StoredTensor& tensor : reader.tensors())
    if (const auto file = by_name.find(tensor.file().name); file != by_name.end()) reader.scatter(tensor, manifest, *file->second, images);
  return images;
}

WeightImages OpenedModel::masters() const {
  if (!reader) return initial();
  check_memory(loaded_bytes(*model, runtime->profile).masters, fmt::format("the model '{}' in fp32", name));
  return reader->masters();
}

DType OpenedModel::file_dtype() const { return reader ? reader->file_dtype() : DType::f32; }

std::int64_t OpenedModel::own_weight_bytes() const {
  const std::int64_t all = loaded_bytes(*model, runtime->profile).weights;
  if (!shared) return all;
  const std::vector<const Buffer*> others = alike(*model, *shared, runtime->profile);
  std::int64_t shares = 0;
  for (std::size_t i = 0; i < others.size(); ++i)
    if (others[i]) shares += computed_bytes(model->manifest().parameters()[i], runtime->profile);
  return all - shares;
}

std::shared_ptr<const WeightSet> OpenedModel::weight_set(std::uint64_t version, WeightPool::Part* part) const {
  if (shared) {
    const std::vector<const Buffer*> others = alike(*model, *shared, runtime->profile);
    const auto own = [&](ParameterId id) { return !others[static_cast<std::size_t>(id)]; };
    const WeightImages images = shared->reader ? images_by_name(*shared->reader, *model, own) : initial();
    auto set = std::make_shared<WeightSet>();
    set->version = version;
    for (std::size_t i = 0; i < others.size(); ++i)
      set->parameters.push_back(others[i] ? *others[i] : make_compute_copy(runtime->backend, model->manifest().parameters()[i], runtime->profile, images[i]));
    return set;
  }
  if (!reader) return make_weight_set(runtime->backend, model->manifest(), initial(), runtime->profile, version);
  for (const std::string& line : reader->rounded_again(runtime->profile)) log_info(line, {{"model", name}});
  return reader->weight_set(runtime->backend, runtime->profile, version, part);
}

}  // namespace lockstep
