// Options of one forward, and the RoPE tables that it uses. Plain values; what they point at outlives the forward and its backward.
//   ForwardOptions options; options.checkpoint = true; Context ctx = runtime.context(weights, cache, batch, options, &tape);
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "model/observer.h"
#include "model/row_values.h"

namespace lockstep {

struct AdapterRows;
class ContextPieces;
class DealtRows;
class SegmentWeights;

// Where a forward writes the chosen experts of some rows, of all MoE layers (model/expert_shape.h).
struct ExpertRecord {
  View experts;  // i32 [R, ExpertShape::row()]; none: not requested
  View row;      // i32 [R, 1], of the batch
};

// What a stage of a pipeline gets from the one before, and gives back in the backward (train/pipeline.h).
struct StageInput {
  Buffer rows;      // f32 [T, hidden]
  Buffer gradient;  // f32, with the rows of the tape
};

struct ForwardOptions {
  bool dense_attention = false;  // attend to all visible keys, whatever the indexer would select (indexer warm-up)
  bool index_loss = false;       // train the indexer by its KL loss
  float index_loss_weight = 0;   // of one row's KL in the gradient
  bool checkpoint = false;       // activation checkpointing: free and recompute layers
  // About so many rows at a time in feed-forward layers (model/operations/row_tiles.h); 0: all. Not where a tape keeps their activations.
  std::int64_t row_tile = 0;
  bool outputs_read = true;                           // false: of layers that are computed again, of which gradients alone are wanted
  const std::vector<Buffer>* router_loads = nullptr;  // i32 [1, E] a sparse layer, counted up
  OperationObserver* observer = nullptr;              // sees every operation's output
  ExpertRecord expert_record;
  bool counts = true;                                  // kernels count what they do (WorkCounters)
  std::int32_t first_key = 0;                          // positions before it are no keys (Rows::first_key)
  const std::vector<AdapterRows>* adapters = nullptr;  // rows that use adapters (model/adapter_rows.h); the others use the base
  RowValues row_values = RowValues::segments;          // which values row_sink gets and row_source has
  RowSink* row_sink = nullptr;                         // gets those that are computed; without a tape
  // Supplies the values instead of their being computed. With RowValues::segments the forward computes no segment and a backward recomputes all of
  // them; router loads are then counted in the backward.
  RowSource* row_source = nullptr;
  bool entries_stand = false;                 // the cache has the rows' entries and index keys already: none are written
  const ContextPieces* pieces = nullptr;      // the rows are pieces of a sequence of which other ranks have the rest
  const DealtRows* dealt_rows = nullptr;      // the ranks that share experts have rows of their own; null: the same ones
  StageInput* stage = nullptr;                // null: the forward begins with the input embedding
  SegmentWeights* segment_weights = nullptr;  // makes a segment's parameters whole before it runs; null: all are (model/segment_weights.h)
};

// A table of model/rope_table.h on the device, and which columns it rotates.
struct RopeAngles {
  View table;
  bool half = false;
};
// A model's tables: of its attention, and of its indexers, which may be the same.
enum class RopeUse { attention, indexer };
using RopeTables = std::array<RopeAngles, 2>;  // by use

}  // namespace lockstep
