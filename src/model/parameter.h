// A parameter of a model as kernels see it: its shape, its layout in memory, and how ranks, adapters and quantisation treat it. It knows no file; the
// file tensors that fill it are in model/file_tensor.h, and the list of all parameters in model/manifest.h. Plain values.
//   Parameter p{.name = "q_proj", .layout = ParameterLayout::packed, .count = 1, .outputs = 64, .inputs = 32}; p.offset(0, n, k);
#pragma once
#include <cstdint>
#include <string>

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

// An element of a parameter: of item `item`, the weight of one input for one output.
struct ElementPlace {
  std::int64_t item = 0, output = 0, input = 0;
};

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
  std::int64_t segment = 0;  // of the model's forward that uses it (model/operations/segment.h); a tied table is used in the last one as well
  std::int64_t item_size() const { return layout == ParameterLayout::packed ? (outputs + 15) / 16 * 16 * inputs : outputs * inputs; }
  std::int64_t size() const { return count * item_size(); }
  // Of a table: its rows, of all items one after the other.
  std::int64_t table_rows() const { return count * outputs; }
  // Offset of element (n, k) of item g.
  std::int64_t offset(std::int64_t g, std::int64_t n, std::int64_t k) const {
    return g * item_size() + (layout == ParameterLayout::packed ? (n / 16 * inputs + k) * 16 + n % 16 : n * inputs + k);
  }
  // The way back.
  ElementPlace place(std::int64_t offset) const {
    const std::int64_t item = offset / item_size(), in_item = offset % item_size();
    if (layout != ParameterLayout::packed) return {item, in_item / inputs, in_item % inputs};
    return {item, in_item / 16 / inputs * 16 + in_item % 16, in_item / 16 % inputs};
  }
};

}  // namespace lockstep
