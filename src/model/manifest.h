// The parameters of a model: their tensor names and shapes in Hugging Face files, and their layout in memory.
// A Parameter is what kernels see (panels, experts stacked, kv_b cut in two); a Piece maps rows of a file tensor to an item of a parameter.
// Only blocks/ and archs/ know names and shapes of files, and declare them here; importers, exporters, hashes, gradients and initialisation
// all walk this list.
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
  table,   // row-major [outputs, inputs]: embedding; also norms and biases as [1, inputs], of experts `count` of them
};

// How tensor- and expert-parallel ranks may split a parameter (model/sharding.h).
enum class ParameterSplit {
  whole,       // every rank has all of it
  outputs,     // a linear layer by its outputs: each rank computes columns of y
  inputs,      // a linear layer by its inputs: each rank computes a partial sum
  bias,        // a vector as the outputs of its linear layer are split
  heads,       // by items, each a head's
  experts,     // by items, each an expert
  columns,     // a table by its columns
  vocabulary,  // the head, by its outputs; a tied table with it
};

// Which adapters a parameter may have (model/adapter.h).
enum class AdapterKind { none, attention, mlp, unembedding };

struct Parameter {
  std::string name;  // this program's name, for messages
  ParameterLayout layout = ParameterLayout::packed;
  std::int64_t count = 1, outputs = 0, inputs = 0;
  bool trained = true;   // false: state that no gradient reaches (the router's correction bias), kept in fp32
  bool indexer = false;  // trained by the index loss only
  ParameterSplit split = ParameterSplit::whole;
  bool tied = false;   // used twice a forward, as input embedding and head: the chains of both are joined before the one rounding
  bool exact = false;  // never quantised (the router)
  AdapterKind adapted = AdapterKind::none;
  std::int64_t item_size() const { return layout == ParameterLayout::packed ? (outputs + 15) / 16 * 16 * inputs : outputs * inputs; }
  std::int64_t size() const { return count * item_size(); }
  // Of a table: its rows, of all items one after the other.
  std::int64_t table_rows() const { return count * outputs; }
  // Offset of element (n, k) of item g.
  std::int64_t offset(std::int64_t g, std::int64_t n, std::int64_t k) const {
    return g * item_size() + (layout == ParameterLayout::packed ? (n / 16 * inputs + k) * 16 + n % 16 : n * inputs + k);
  }
};

// Rows [row_begin, row_begin + rows) of a file tensor [file rows, file columns] are item `item` of a parameter:
// element (n, k) = file (row_begin + n, k), or, transposed, file (row_begin + k, n). Of the file's columns these are column_begin and each
// column_step-th behind it (gate and up in turn).
struct Piece {
  ParameterId parameter = 0;
  std::int64_t item = 0, row_begin = 0, rows = 0;
  bool transposed = false;
  std::int64_t column_begin = 0, column_step = 1;
  // Where one file tensor holds the weights of several linear layers: the name of this one, as adapters call it. Else empty.
  std::string layer = {};
};

struct FileTensor {
  std::string name;                 // Hugging Face name
  std::vector<std::int64_t> shape;  // of any rank; seen here as rows of the last dimension
  bool fp32 = false;                // stays fp32 in a bf16 file
  std::vector<Piece> pieces;
  // Files may hold it inside a larger tensor instead: Manifest::fused()[fused], from element `fused_begin` on. -1: they may not.
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
  std::int64_t trained_size() const;                               // number of trained weights without padding

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

// The file tensors in the order of the model, but of one with several layers' weights (Piece::layer) one tensor a layer, `layer`.weight
// [outputs, inputs].
std::vector<FileTensor> tensors_by_layer(const Manifest& manifest);

}  // namespace lockstep
