// The list of a model's parameters, with the tensors of Hugging Face files that fill them (model/parameter.h, model/file_tensor.h). blocks/ and archs/
// declare it; they alone know the names and shapes of files. Import, export, hashes, gradients and initialisation all walk this list.
//   Manifest m; const ParameterId q = m.matrix("model.layers.0.self_attn.q_proj.weight", outputs, inputs);
//   m.split(ParameterSplit::outputs, {q}); m.adapt(AdapterKind::attention, {q});
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "model/file_tensor.h"
#include "model/parameter.h"

namespace lockstep {

class Manifest {
 public:
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const Parameter& parameter(ParameterId id) const { return parameters_[static_cast<std::size_t>(id)]; }
  const std::vector<FileTensor>& files() const { return files_; }  // in the order of the model

  // For blocks/ and archs/: each declares a parameter and the file tensors that fill it.
  ParameterId matrix(const std::string& file, std::int64_t outputs, std::int64_t inputs, bool indexer = false);
  ParameterId vector(const std::string& file, std::int64_t n, bool indexer = false);
  ParameterId table(const std::string& file, std::int64_t rows, std::int64_t columns);
  // Tied input embedding and head: in panels, as the head uses it.
  ParameterId tied_table(const std::string& file, std::int64_t rows, std::int64_t columns);
  // The bias of a linear layer of n outputs that ranks split by its outputs.
  ParameterId bias(const std::string& file, std::int64_t n) {
    const ParameterId id = vector(file, n);
    split(ParameterSplit::bias, {id});
    return id;
  }
  ParameterId untrained_vector(const std::string& file, std::int64_t n);
  // `file_of(g)` names the tensor [outputs, inputs] of item g.
  template <class F>
  ParameterId matrices(const std::string& name, std::int64_t count, std::int64_t outputs, std::int64_t inputs, const F& file_of) {
    const ParameterId id = add({name, ParameterLayout::packed, count, outputs, inputs});
    for (std::int64_t g = 0; g < count; ++g) files_.push_back({file_of(g), {outputs, inputs}, false, {{id, g, 0, outputs, false}}});
    return id;
  }
  // Files may hold all items of these stacked matrices in one tensor [count, rows of all, inputs] called `name`: in each item, the rows
  // of the first parameter, then those of the next.
  void fuse(const std::string& name, std::initializer_list<ParameterId> ids);
  const std::vector<FusedTensor>& fused() const { return fused_; }
  // Tensors of layers from `layers` on (`prefix` + number + '.') are not part of the model; files may hold them.
  void pass_over_layers(const std::string& prefix, std::int64_t layers) { layer_prefix_ = prefix, layers_ = layers; }
  const std::string& layer_prefix() const { return layer_prefix_; }
  // The number of such a layer, given a tensor's name; -1: not such a tensor.
  std::int64_t layer_passed_over(const std::string& name) const;
  // Declares that these parameters may have adapters.
  void adapt(AdapterKind kind, std::initializer_list<ParameterId> ids) {
    for (const ParameterId id : ids) parameters_[static_cast<std::size_t>(id)].adapted = kind;
  }
  // Declares how ranks split parameters; the default is whole.
  void split(ParameterSplit how, std::initializer_list<ParameterId> ids) {
    for (const ParameterId id : ids) parameters_[static_cast<std::size_t>(id)].split = how;
  }
  // Declares in which segment of the forward the newest parameters are used, from `first` on; the default is the first one.
  void set_segment(ParameterId first, std::int64_t segment) {
    for (auto i = static_cast<std::size_t>(first); i < parameters_.size(); ++i) parameters_[i].segment = segment;
  }
  // Declares a matrix that no profile quantises.
  void keep_exact(ParameterId id) { parameters_[static_cast<std::size_t>(id)].exact = true; }
  // A parameter without its own file tensor; its pieces are added to a file tensor declared by hand.
  ParameterId add(Parameter parameter);
  void add_file(FileTensor file) { files_.push_back(std::move(file)); }
  // An alias under which some files hold a copy of a tensor.
  void add_alias(const std::string& name, const std::string& of) { aliases_.emplace_back(name, of); }
  const std::vector<std::pair<std::string, std::string>>& aliases() const { return aliases_; }

  // Copies file values (row-major, fp32) into / out of a parameter's host image (panels). Images hold size() elements, padding 0.
  // `rows` not -1: the values are those of rows [row, row + rows) alone.
  void scatter(const FileTensor& file, const float* values, std::vector<std::vector<float>>& images, std::int64_t row = 0, std::int64_t rows = -1) const;
  void gather(const FileTensor& file, const std::vector<std::vector<float>>& images, float* values) const;

 private:
  std::vector<Parameter> parameters_;
  std::vector<FileTensor> files_;
  std::vector<FusedTensor> fused_;
  std::string layer_prefix_;
  std::int64_t layers_ = 0;
  std::vector<std::pair<std::string, std::string>> aliases_;
};

// Number of trained weights, without padding.
std::int64_t trained_size(const Manifest& manifest);

// The file tensors in the order of the model. One that holds the weights of several layers (Piece::layer) is replaced by a tensor for each of them,
// `layer`.weight [outputs, inputs].
std::vector<FileTensor> tensors_by_layer(const Manifest& manifest);

}  // namespace lockstep
