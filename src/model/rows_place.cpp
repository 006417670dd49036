#include "model/rows_place.h"

#include <algorithm>

namespace lockstep {

namespace {
// Elements that both places have: for each of `inputs`, `lanes` outputs next to each other.
struct RunInBoth {
  std::int64_t from = 0, to = 0;  // of the values that are looked at, and of the image
  std::int64_t inputs = 0, lanes = 0;
};

// f(run) for all of them in values [begin, begin + size) of the rows `from`.
template <class F>
void each_run_in_both(const RowsPlace& from, std::int64_t begin, std::int64_t size, const RowsPlace& to, const F& f) {
  if (from.parameter != to.parameter || from.packed != to.packed || from.width() == 0 || to.rows == 0) return;
  const std::int64_t height = from.height(), width = from.width();
  for (std::int64_t at = begin; at < begin + size;) {
    const std::int64_t in_row = at % width, end = std::min(begin + size, at - in_row + width);
    const std::int64_t row = from.first + at / width, from_input = from.corner.input + in_row / height;
    const std::int64_t item = from.corner.item + row / from.rows_of_item() - to.corner.item;
    const std::int64_t input = std::max(from_input, to.corner.input), last_input = std::min(from_input + (end - at) / height, to.corner.input + to.inputs);
    if (item >= 0 && item < to.count && input < last_input) {
      const std::int64_t output = row % from.rows_of_item() * height, lanes = std::min(height, from.outputs - output);
      const std::int64_t moved = from.corner.output + output - to.corner.output;  // the row's first output, in the other share
      for (std::int64_t lane = std::max<std::int64_t>(0, -moved); lane < lanes && moved + lane < to.outputs;) {
        const std::int64_t there = moved + lane, to_row = item * to.rows_of_item() + there / height;
        const std::int64_t together = std::min({lanes - lane, height - there % height, to.outputs - there});
        if (to_row >= to.first && to_row < to.first + to.rows)
          f(RunInBoth{at - begin + (input - from_input) * height + lane, (to_row * to.inputs + input - to.corner.input) * height + there % height,
                      last_input - input, together});
        lane += together;
      }
    }
    at = end;
  }
}
}  // namespace

RowsPlace all_rows_of(const Parameter& parameter, ParameterId id) {
  RowsPlace place{.parameter = id,
                  .packed = parameter.layout == ParameterLayout::packed,
                  .count = parameter.count,
                  .outputs = parameter.outputs,
                  .inputs = parameter.inputs};
  place.rows = place.all_rows();
  return place;
}

std::int64_t elements_of(const RowsPlace& place) {
  std::int64_t outputs = 0;
  for (std::int64_t row = place.first; row < place.first + place.rows; ++row)
    outputs += std::min(place.height(), place.outputs - row % place.rows_of_item() * place.height());
  return outputs * place.inputs;
}

std::int64_t elements_in_both(const RowsPlace& from, std::int64_t begin, std::int64_t size, const RowsPlace& to) {
  std::int64_t elements = 0;
  each_run_in_both(from, begin, size, to, [&](const RunInBoth& run) { elements += run.inputs * run.lanes; });
  return elements;
}

std::int64_t copy_elements(const RowsPlace& from, std::int64_t begin, std::span<const float> values, const RowsPlace& to, std::span<float> image) {
  std::int64_t elements = 0;
  const std::int64_t height = from.height();
  each_run_in_both(from, begin, std::ssize(values), to, [&](const RunInBoth& run) {
    elements += run.inputs * run.lanes;
    const float* source = values.data() + run.from;
    float* target = image.data() + run.to;
    if (run.lanes == height) std::copy_n(source, run.inputs * height, target);
    else
      for (std::int64_t k = 0; k < run.inputs; ++k) std::copy_n(source + k * height, run.lanes, target + k * height);
  });
  return elements;
}

}  // namespace lockstep
