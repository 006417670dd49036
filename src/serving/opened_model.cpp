// The weights of an opened model: in fp32, or as forwards compute with them.
#include "base/free_memory.h"
#include "base/log.h"
#include "checkpoint/model_reader.h"
#include "checkpoint/reading_memory.h"
#include "model/low_bit_weights.h"
#include "serving/loading.h"

namespace lockstep {

LoadedBytes loaded_bytes(const Model& model, const Profile& profile) {
  LoadedBytes bytes;
  bytes.masters = masters_reading_bytes(model.manifest());
  for (const Parameter& p : model.manifest().parameters()) {
    bytes.masters += p.size() * static_cast<std::int64_t>(sizeof(float));
    if (weight_bits(p, profile) != 0) bytes.weights += p.count * item_bytes(p, profile);
    else bytes.weights += p.size() * element_size(compute_dtype(p, profile), false);
  }
  return bytes;
}

WeightImages OpenedModel::masters() const {
  if (!reader) return initial();
  check_memory(loaded_bytes(*model, runtime->profile).masters, fmt::format("the model '{}' in fp32", name));
  return reader->masters();
}

DType OpenedModel::file_dtype() const { return reader ? reader->file_dtype() : DType::f32; }

std::shared_ptr<const WeightSet> OpenedModel::weight_set(std::uint64_t version) const {
  if (!reader) return make_weight_set(runtime->backend, model->manifest(), initial(), runtime->profile, version);
  for (const std::string& line : reader->rounded_again(runtime->profile)) log_info(line, {{"model", name}});
  return reader->weight_set(runtime->backend, runtime->profile, version);
}

}  // namespace lockstep
