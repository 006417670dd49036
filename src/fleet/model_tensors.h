// Converts between the compute copy in the device's layout and a snapshot's tensors: names and row-major bytes as in a Hugging Face file, of all
// weights, or of an adapter (PEFT's names). Knows no store. Any thread.
//   const ModelTensors tensors(model.manifest(), profile);   tensors.parts(i, type).read(device, buffers, 0, bytes, scratch);
//   tensors.each_change(i, 0, bytes, now, type, 1 << 20, [&](std::map<ParameterId, ParameterChanges> some) { ... });
#pragma once
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "model/tensor_parts.h"
#include "model/weight_changes.h"
#include "sync/folder_tensors.h"

namespace lockstep {

class ModelTensors {
 public:
  // All weights under a profile; both outlive it. Error unsupported for a profile that quantises some: no tensor of a file has their bytes.
  ModelTensors(const Manifest& manifest, const Profile& profile);
  // All in fp32: an adapter's.
  explicit ModelTensors(const Manifest& manifest);

  // Sorted by name; types are those of the compute copy: BF16, or F32.
  const std::vector<TensorShape>& shapes() const { return shapes_; }
  // Place of a tensor; shapes().size(): there is none.
  std::size_t find(std::string_view name) const;
  bool is_alias(std::string_view name) const;  // under which some files hold a copy of a tensor
  const std::set<ParameterId>& parameters(std::size_t i) const { return parameters_[i]; }

  // Errors, of all: unsupported for a type other than BF16 and F32; corrupt_file where there are more or fewer bytes than the tensor has.
  // The tensor in parts, from the compute copies that it fills.
  TensorParts parts(std::size_t i, SafetensorsType type) const;
  // The elements in which new bytes differ from old ones, from element `first` of the tensor on, as changes of the compute copies: calls take() for at most
  // `most` at a time. For all weights.
  void each_change(std::size_t i, std::int64_t first, std::string_view before, std::string_view now, SafetensorsType type, std::size_t most,
                   const std::function<void(std::map<ParameterId, ParameterChanges> some)>& take) const;
  // Into images, of which parameters that are not at hand may be empty.
  void put(std::size_t i, std::string_view bytes, SafetensorsType type, WeightImages& images) const;

 private:
  void list(const std::function<bool(const Parameter&)>& is_bf16);
  void check_bytes(std::size_t i, std::string_view bytes, SafetensorsType type) const;
  const Manifest& manifest_;
  const Profile* profile_ = nullptr;  // null: an adapter's
  std::vector<TensorShape> shapes_;
  std::vector<const FileTensor*> files_;
  std::vector<std::set<ParameterId>> parameters_;
};

}  // namespace lockstep
