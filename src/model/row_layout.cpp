#include "model/row_layout.h"

#include "base/error.h"
#include "model/runtime.h"

namespace lockstep {

std::vector<std::int64_t> row_widths(const Runtime& runtime, RowValues values) {
  const Model& model = *runtime.model;
  if (values == RowValues::segments) return std::vector<std::int64_t>(static_cast<std::size_t>(model.segments()), model.facts().hidden);
  struct Widths final : RowSink {
    void output(std::int64_t, const View& rows, const Buffer&) override { all.push_back(rows.cols); }
    std::vector<std::int64_t> all;
  } widths;
  Runtime counting({.kind = BackendKind::counting, .threads = 1}, runtime.model, runtime.profile, 1);
  const auto weights = make_weight_set(counting.backend, model.manifest(), WeightImages(model.manifest().parameters().size()), runtime.profile, 0);
  KvCache cache(counting.backend, model.cache_shapes(runtime.profile), runtime.profile, 1, 1);
  std::vector<SequenceSlice> row(1);
  row[0].tokens = row[0].pages = {0};
  const Batch batch(counting.backend, row, 1, false);
  ForwardOptions options;
  options.row_values = values;
  options.row_sink = &widths;
  Context context = counting.context(*weights, cache, batch, options);
  model.forward(context);
  return widths.all;
}

RowLayout::RowLayout(std::vector<std::int64_t> widths, std::int64_t positions) : widths_(std::move(widths)), positions_(positions) {
  if (positions < 1) fail(ErrorCode::invalid_argument, "page_positions is {}, allowed is 1 or more", positions);
  for (const std::int64_t width : widths_) {
    begins_.push_back(columns_);
    columns_ += width;
  }
}

View RowLayout::of_value(const View& page, std::int64_t value) const {
  return page.row_range(begins_[static_cast<std::size_t>(value)] * positions_, width(value) * positions_).reshape(positions_, width(value));
}

}  // namespace lockstep
