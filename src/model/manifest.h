// The tensors of a model: what each is called in a Hugging Face folder, and how it lies in memory here.
// A Parameter is what kernels see (packed panels, experts stacked, kv_b cut in two); a Piece says which rows of which file
// tensor fill which item of it. Names and shapes of files are known to blocks/ and archs/ alone, which declare them here; importers, exporters,
// hashes, gradients and initialisation all walk this list.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

using ParameterId = int;

enum class ParameterLayout {
  packed,  // count items of [outputs, inputs] in panels [N/16][K][16]; a tied embedding too
  table,   // row-major [outputs, inputs]: embedding; also norms and biases as [1, inputs]
};

// How tensor- and expert-parallel ranks may share a parameter (model/sharding.h).
enum class ParameterSplit {
  whole,       // every rank has all of it
  outputs,     // a linear layer by its outputs: each rank makes columns of y
  inputs,      // a linear layer by its inputs: each rank makes a part of the sum
  heads,       // by items, each a head's
  experts,     // by items, each an expert
  columns,     // a table by its columns
  vocabulary,  // the head, by its outputs; a tied table with it
};

// Which adapters may stand on a parameter (model/adapter.h).
enum class AdapterKind { none, attention, mlp, unembedding };

struct Parameter {
  std::string name;  // of the parameter here, for messages
  ParameterLayout layout = ParameterLayout::packed;
  std::int64_t count = 1, outputs = 0, inputs = 0;
  bool trained = true;   // false: state that no gradient reaches (the router's correction bias), kept in fp32
  bool indexer = false;  // trained by the index loss only
  ParameterSplit split = ParameterSplit::whole;
  bool tied = false;     // used twice a forward, as input embedding and head: the chains of both are joined before the one rounding
  bool exact = false;    // a matrix that stays as it is where a profile has integers (the router)
  AdapterKind adapted = AdapterKind::none;
  std::int64_t item_size() const { return layout == ParameterLayout::packed ? (outputs + 15) / 16 * 16 * inputs : outputs * inputs; }
  std::int64_t size() const { return count * item_size(); }
  // Where element (n, k) of item g lies.
  std::int64_t offset(std::int64_t g, std::int64_t n, std::int64_t k) const {
    return g * item_size() + (layout == ParameterLayout::packed ? (n / 16 * inputs + k) * 16 + n % 16 : n * inputs + k);
  }
};

// Rows [row_begin, row_begin + rows) of a file tensor [file rows, file columns] are item `item` of a parameter:
// element (n, k) = file (row_begin + n, k), or, transposed, file (row_begin + k, n).
struct Piece {
  ParameterId parameter = 0;
  std::int64_t item = 0, row_begin = 0, rows = 0;
  bool transposed = false;
};

struct FileTensor {
  std::string name;                  // Hugging Face name
  std::vector<std::int64_t> shape;   // of any rank; seen here as rows of the last dimension
  bool fp32 = false;                 // stays fp32 in a bf16 file
  std::vector<Piece> pieces;
  // Files may hold it as a part of a larger tensor instead: Manifest::fused()[fused], from element `fused_begin` on. -1: they may not.
  std::int32_t fused = -1;
  std::int64_t fused_begin = 0;
  std::int64_t columns() const { return shape.back(); }
  std::int64_t size() const {
    std::int64_t n = 1;
    for (const std::int64_t extent : shape) n *= extent;
    return n;
  }
  std::int64_t rows() const { return size() / columns(); }
};

struct FusedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
};

class Manifest {
 public:
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const Parameter& parameter(ParameterId id) const { return parameters_[static_cast<std::size_t>(id)]; }
  const std::vector<FileTensor>& files() const { return files_; }  // in the order of the model
  std::int64_t trained_size() const;  // number of trained weights without padding

  // For blocks/ and archs/: each declares a parameter and the file tensors that fill it.
  ParameterId matrix(const std::string& file, std::int64_t outputs, std::int64_t inputs, bool indexer = false);
  ParameterId vector(const std::string& file, std::int64_t n, bool indexer = false);
  ParameterId table(const std::string& file, std::int64_t rows, std::int64_t columns);
  // Input embedding and head in one: packed, as the head uses it.
  ParameterId tied_table(const std::string& file, std::int64_t rows, std::int64_t columns);
  ParameterId untrained_vector(const std::string& file, std::int64_t n);
  // `file_of(g)` names the tensor [outputs, inputs] of item g.
  template <class F>
  ParameterId matrices(const std::string& name, std::int64_t count, std::int64_t outputs, std::int64_t inputs, const F& file_of) {
    const ParameterId id = add({name, ParameterLayout::packed, count, outputs, inputs});
    for (std::int64_t g = 0; g < count; ++g) files_.push_back({file_of(g), {outputs, inputs}, false, {{id, g, 0, outputs, false}}});
    return id;
  }
  // Files may hold all items of these stacked matrices in one tensor [count, rows of all, inputs] called `name`: of each item first the rows
  // of the first parameter, then those of the next.
  void fuse(const std::string& name, std::initializer_list<ParameterId> ids);
  const std::vector<FusedTensor>& fused() const { return fused_; }
  // Tensors of layers from `layers` on, called `prefix` and their number and '.', are no part of the model: files may hold them.
  void pass_over_layers(const std::string& prefix, std::int64_t layers) { layer_prefix_ = prefix, layers_ = layers; }
  const std::string& layer_prefix() const { return layer_prefix_; }
  // The number of such a layer, for the name of one of its tensors; -1: it is none.
  std::int64_t layer_passed_over(const std::string& name) const;
  // What files in block-128 FP8 call the scales beside a matrix.
  static std::string block_scales_of(const std::string& name) { return name + "_scale_inv"; }
  // Declares that adapters may stand on these parameters.
  void adapt(AdapterKind kind, std::initializer_list<ParameterId> ids) {
    for (const ParameterId id : ids) parameters_[static_cast<std::size_t>(id)].adapted = kind;
  }
  // Declares how ranks share parameters; the default is whole.
  void split(ParameterSplit how, std::initializer_list<ParameterId> ids) {
    for (const ParameterId id : ids) parameters_[static_cast<std::size_t>(id)].split = how;
  }
  // Declares a matrix that no profile turns into integers.
  void keep_exact(ParameterId id) { parameters_[static_cast<std::size_t>(id)].exact = true; }
  // A parameter without a file of its own; pieces are added to a file tensor declared by hand.
  ParameterId add(Parameter parameter);
  void add_file(FileTensor file) { files_.push_back(std::move(file)); }
  // A name under which some files hold a tensor a second time, with the same values.
  void add_alias(const std::string& name, const std::string& of) { aliases_.emplace_back(name, of); }
  const std::vector<std::pair<std::string, std::string>>& aliases() const { return aliases_; }

  // File values (row-major, fp32) into / out of the packed host image of a parameter. Images hold size() elements, padding 0.
  void scatter(const FileTensor& file, const float* values, std::vector<std::vector<float>>& images) const;
  void gather(const FileTensor& file, const std::vector<std::vector<float>>& images, float* values) const;

 private:
  std::vector<Parameter> parameters_;
  std::vector<FileTensor> files_;
  std::vector<FusedTensor> fused_;
  std::string layer_prefix_;
  std::int64_t layers_ = 0;
  std::vector<std::pair<std::string, std::string>> aliases_;
};

}  // namespace lockstep
