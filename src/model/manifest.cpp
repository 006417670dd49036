#include "model/manifest.h"

#include <algorithm>
#include <charconv>

#include "base/give_way.h"
#include "model/piece_elements.h"
#include "numerics/isa/panel_rows.h"

namespace lockstep {

ParameterId Manifest::add(Parameter parameter) {
  parameters_.push_back(std::move(parameter));
  return static_cast<ParameterId>(parameters_.size()) - 1;
}

ParameterId Manifest::matrix(const std::string& file, std::int64_t outputs, std::int64_t inputs, bool indexer) {
  const ParameterId id = add({file, ParameterLayout::packed, 1, outputs, inputs, true, indexer});
  files_.push_back({file, {outputs, inputs}, false, {{id, 0, 0, outputs, false}}});
  return id;
}

ParameterId Manifest::vector(const std::string& file, std::int64_t n, bool indexer) {
  const ParameterId id = add({file, ParameterLayout::table, 1, 1, n, true, indexer});
  files_.push_back({file, {n}, false, {{id, 0, 0, 1, false}}});
  return id;
}

ParameterId Manifest::table(const std::string& file, std::int64_t rows, std::int64_t columns) {
  const ParameterId id = add({file, ParameterLayout::table, 1, rows, columns});
  files_.push_back({file, {rows, columns}, false, {{id, 0, 0, rows, false}}});
  return id;
}

ParameterId Manifest::tied_table(const std::string& file, std::int64_t rows, std::int64_t columns) {
  const ParameterId id = add({file, ParameterLayout::packed, 1, rows, columns, true, false, ParameterSplit::whole, true});
  files_.push_back({file, {rows, columns}, false, {{id, 0, 0, rows, false}}});
  return id;
}

ParameterId Manifest::untrained_vector(const std::string& file, std::int64_t n) {
  const ParameterId id = add({file, ParameterLayout::table, 1, 1, n, false});
  files_.push_back({file, {n}, true, {{id, 0, 0, 1, false}}});
  return id;
}

void Manifest::fuse(const std::string& name, std::initializer_list<ParameterId> ids) {
  const Parameter& first = parameter(*ids.begin());
  std::vector<std::int64_t> before{0};  // of an item, the rows of the parameters before each
  for (const ParameterId id : ids) before.push_back(before.back() + parameter(id).outputs);
  // Searches from the end: they were declared last or nearly so, and a config may list many layers.
  std::int64_t left = first.count * static_cast<std::int64_t>(ids.size());
  for (auto file = files_.rbegin(); left > 0 && file != files_.rend(); ++file) {
    const Piece& piece = file->pieces[0];
    const auto found = std::find(ids.begin(), ids.end(), piece.parameter);
    if (found == ids.end()) continue;
    file->fused = static_cast<std::int32_t>(fused_.size());
    file->fused_begin = (piece.item * before.back() + before[static_cast<std::size_t>(found - ids.begin())]) * first.inputs;
    --left;
  }
  fused_.push_back({name, {first.count, before.back(), first.inputs}});
}

std::int64_t Manifest::layer_passed_over(const std::string& name) const {
  if (layer_prefix_.empty() || !name.starts_with(layer_prefix_)) return -1;
  std::int64_t layer = -1;
  const char* end = name.data() + name.size();
  const auto number = std::from_chars(name.data() + layer_prefix_.size(), end, layer);
  return number.ec == std::errc() && number.ptr != end && *number.ptr == '.' && layer >= layers_ ? layer : -1;
}

std::vector<FileTensor> tensors_by_layer(const Manifest& manifest) {
  std::vector<FileTensor> all;
  for (const FileTensor& file : manifest.files()) {
    if (file.pieces[0].layer.empty()) {
      all.push_back(file);
      continue;
    }
    for (const Piece& piece : file.pieces) {
      const Parameter& p = manifest.parameter(piece.parameter);
      all.push_back({piece.layer + ".weight", {p.outputs, p.inputs}, file.fp32, {{piece.parameter, piece.item, 0, p.outputs, false}}});
    }
  }
  return all;
}

std::int64_t trained_size(const Manifest& manifest) {
  std::int64_t total = 0;
  for (const Parameter& p : manifest.parameters())
    if (p.trained) total += p.count * p.outputs * p.inputs;
  return total;
}

void Manifest::scatter(const FileTensor& file, const float* values, std::vector<std::vector<float>>& images, std::int64_t row, std::int64_t rows) const {
  if (rows < 0) rows = file.rows();
  for (const Piece& piece : file.pieces) {
    std::vector<float>& image = images[static_cast<std::size_t>(piece.parameter)];
    const Parameter& p = parameter(piece.parameter);
    if (image.empty()) grow_with_zeros(image, static_cast<std::size_t>(p.size()));
    each_piece_element(file, piece, p, row, rows, [values, to = image.data()](std::int64_t at, std::int64_t offset) { to[offset] = values[at]; });
  }
}

void Manifest::gather(const FileTensor& file, const std::vector<std::vector<float>>& images, float* values) const {
  for (const Piece& piece : file.pieces) {
    const Parameter& p = parameter(piece.parameter);
    const float* from = images[static_cast<std::size_t>(piece.parameter)].data();
    const std::int64_t columns = file.columns(), whole = has_whole_panels(file, piece, p) ? piece.rows / 16 * 16 : 0;
    for (std::int64_t r = 0; r < whole; r += 16)
      panel_rows(from + p.offset(piece.item, r, 0), sizeof(float), columns, values + (piece.row_begin + r) * columns, columns);
    const std::int64_t rest = whole > 0 ? piece.row_begin + whole : 0, rows = whole > 0 ? piece.rows - whole : file.rows();
    each_piece_element(file, piece, p, rest, rows, [to = values + rest * columns, from](std::int64_t at, std::int64_t offset) { to[at] = from[offset]; });
  }
}

}  // namespace lockstep
