// Converts between the compute copy in the device's layout and a snapshot's tensors: names and row-major bytes as in a Hugging Face file, of all
// weights, or of an adapter (PEFT's names). Images need only the parameters at hand; the rest may be empty. Knows no device and no store. Any thread.
//   const ModelTensors tensors(model.manifest(), profile);   bytes = tensors.bytes(i, images, SafetensorsType::bf16);
//   tensors.put(i, bytes, type, images);
#pragma once
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "model/weights.h"
#include "sync/folder_tensors.h"

namespace lockstep {

class ModelTensors {
 public:
  // All weights under a profile. Error unsupported for a profile that quantises some: no tensor of a file has their bytes.
  ModelTensors(const Manifest& manifest, const Profile& profile);
  // All in fp32: an adapter's.
  explicit ModelTensors(const Manifest& manifest);

  // Sorted by name; types are those of the compute copy: BF16, or F32.
  const std::vector<TensorShape>& shapes() const { return shapes_; }
  // Place of a tensor; shapes().size(): there is none.
  std::size_t find(std::string_view name) const;
  bool is_alias(std::string_view name) const;  // under which some files hold a copy of a tensor
  const std::set<ParameterId>& parameters(std::size_t i) const { return parameters_[i]; }

  // Groups of parameters to read or write together, each with the tensors that fill them: all parameters that one tensor spans, and further ones up
  // to `most` weights, so that many small ones cost the device's thread one turn. Tensors that are not `wanted` are ignored.
  static constexpr std::int64_t kGroupWeights = std::int64_t{4} << 20;
  struct Group {
    std::vector<ParameterId> parameters;
    std::vector<std::size_t> tensors;
  };
  std::vector<Group> groups(const std::function<bool(std::size_t tensor)>& wanted, std::int64_t most = kGroupWeights) const;

  // Error unsupported for a type other than BF16 and F32.
  std::string bytes(std::size_t i, const WeightImages& images, SafetensorsType type) const;
  void put(std::size_t i, std::string_view bytes, SafetensorsType type, WeightImages& images) const;

 private:
  void list(const std::function<bool(const Parameter&)>& is_bf16);
  const Manifest& manifest_;
  std::vector<TensorShape> shapes_;
  std::vector<const FileTensor*> files_;
  std::vector<std::set<ParameterId>> parameters_;
};

// Values of some parameters of a compute copy, the rest empty. The device's thread.
WeightImages read_parameters(Backend& backend, const std::vector<Buffer>& buffers, const std::vector<ParameterId>& which);

}  // namespace lockstep
