#include "checkpoint/computed_tensors.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/give_way.h"
#include "base/thread_pool.h"
#include "checkpoint/reading_memory.h"
#include "checkpoint/stored_e4m3.h"
#include "model/compute_copy.h"
#include "model/low_bit_weights.h"
#include "numerics/int4_words.h"
#include "numerics/mxfp4.h"

namespace lockstep {

namespace {
// Some rows of one piece of a tensor, and where they belong. `by_outputs`: of a transposed piece, outputs of the matrix, which its file has as rows.
struct Part {
  const StoredTensor* tensor;
  const Piece* piece;
  std::int64_t row, rows;  // of the piece
  bool by_outputs = false;
};

// Rows of the tensor, of those columns that are the piece's.
void read_own(const StoredTensor& tensor, const Piece& piece, std::int64_t row, std::int64_t rows, float* values) {
  const std::int64_t columns = tensor.file().columns();
  if (own_columns(piece, columns) == columns) return tensor.read(row, rows, values);
  std::vector<float> all(static_cast<std::size_t>(rows * columns));
  tensor.read(row, rows, all.data());
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = piece.column_begin; c < columns; c += piece.column_step) *values++ = all[static_cast<std::size_t>(r * columns + c)];
}

// [rows][columns] as [columns][rows].
template <class T>
std::vector<T> transposed(const std::vector<T>& values, std::int64_t rows) {
  const std::int64_t columns = static_cast<std::int64_t>(values.size()) / rows;
  std::vector<T> turned(values.size());
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) turned[static_cast<std::size_t>(c * rows + r)] = values[static_cast<std::size_t>(r * columns + c)];
  return turned;
}

ConvertedPart convert(const Part& part, const Parameter& p, const Profile& profile) {
  const StoredTensor& t = *part.tensor;
  const std::int64_t from = part.piece->row_begin + part.row, columns = t.file().columns();
  if (!part.piece->transposed && part.piece->column_step == 1 && t.holds_int4() && takes_format(p, profile, LowBitFormat::int4)) {
    std::vector<std::uint32_t> words(static_cast<std::size_t>(part.rows * int4_words(columns)));
    std::vector<Bf16> scales(static_cast<std::size_t>(part.rows * QuantisedShape{part.rows, columns, 4}.groups()));
    t.read_int4(from, part.rows, words.data(), scales.data());
    return convert_int4(p, profile, part.piece->item, part.row, part.rows, words.data(), scales.data());
  }
  if (t.form().keeps_blocks(t.file(), p) && takes_format(p, profile, LowBitFormat::fp8)) {
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(part.rows * columns));
    std::vector<float> scales;
    read_blocks(t, from, part.rows, codes.data(), scales);
    if (!part.piece->transposed) return convert_fp8(p, profile, part.piece->item, part.row, part.rows, codes.data(), scales.data());
    const std::int64_t down = (part.rows + kFp8Block - 1) / kFp8Block;  // all rows of the piece: the matrix's inputs
    return convert_fp8(p, profile, part.piece->item, 0, columns, transposed(codes, part.rows).data(), transposed(scales, down).data());
  }
  if (t.form().keeps_groups(t.file(), p) && takes_format(p, profile, LowBitFormat::mxfp8)) {
    std::vector<std::uint8_t> codes, exponents;
    read_groups(t, from, part.rows, codes, exponents);
    return convert_mxfp8(p, profile, part.piece->item, part.row, part.rows, codes.data(), exponents.data());
  }
  if (part.by_outputs) {
    std::vector<float> values(static_cast<std::size_t>(part.rows * p.inputs));
    t.read_outputs(part.piece->row_begin / p.inputs, part.piece->column_begin + part.row * part.piece->column_step, part.piece->column_step, part.rows,
                   values.data());
    return convert_rows(p, profile, part.piece->item, part.row, part.rows, values.data());
  }
  // All rows of a matrix belong to each of its outputs, and stand in memory some at a time.
  if (part.piece->transposed)
    return convert_transposed(p, profile, part.piece->item, rows_at_once(columns),
                              [&](std::int64_t input, std::int64_t count, float* values) { read_own(t, *part.piece, from + input, count, values); });
  std::vector<float> values(static_cast<std::size_t>(part.rows * own_columns(*part.piece, columns)));
  read_own(t, *part.piece, from, part.rows, values.data());
  return convert_rows(p, profile, part.piece->item, part.row, part.rows, values.data());
}

std::vector<Part> parts_of(const StoredTensor& tensor, const Piece& piece) {
  std::vector<Part> parts;
  if (piece.transposed && tensor.as() == StoredAs::mxfp4) {  // piece.rows: the inputs
    const std::int64_t outputs = own_columns(piece, tensor.file().columns()), at_once = rows_at_once(piece.rows);
    for (std::int64_t row = 0; row < outputs; row += at_once) parts.push_back({&tensor, &piece, row, std::min(at_once, outputs - row), true});
    return parts;
  }
  const std::int64_t step = piece.transposed ? piece.rows : rows_at_once(tensor.file().columns());
  for (std::int64_t row = 0; row < piece.rows; row += step) parts.push_back({&tensor, &piece, row, std::min(step, piece.rows - row)});
  return parts;
}
}  // namespace

std::shared_ptr<const WeightSet> computed_weights(const Manifest& manifest, const std::vector<StoredTensor>& tensors, Backend& backend, const Profile& profile,
                                                  std::uint64_t version, WeightPool::Part* part) {
  const std::vector<Parameter>& parameters = manifest.parameters();
  std::vector<std::vector<Part>> parts(parameters.size());
  for (const StoredTensor& tensor : tensors)
    for (const Piece& piece : tensor.file().pieces) {
      auto& of = parts[static_cast<std::size_t>(piece.parameter)];
      for (const Part& part : parts_of(tensor, piece)) of.push_back(part);
    }
  auto set = std::make_shared<WeightSet>();
  set->version = version;
  // On a deferred device the threads may be at work for queued kernels.
  const bool alone = backend.stream().deferred();
  const auto at_once = static_cast<std::size_t>(alone ? 1 : std::min<std::int64_t>(backend.device().threads().threads(), kMostReaders));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& p = parameters[i];
    if (part) part->reserve(computed_bytes(p, profile));
    set->parameters.push_back(allocate_compute_copy(backend, p, profile));
    if (backend.device().counting()) continue;
    for (std::size_t first = 0; first < parts[i].size(); first += at_once) {
      std::vector<ConvertedPart> converted(std::min(at_once, parts[i].size() - first));
      const auto work = [&](std::int64_t j) { converted[static_cast<std::size_t>(j)] = convert(parts[i][first + static_cast<std::size_t>(j)], p, profile); };
      if (alone) work(0);
      else backend.device().threads().run(static_cast<std::int64_t>(converted.size()), work);
      for (const ConvertedPart& part : converted) write_part(backend, p, profile, set->parameters.back(), part);
      give_way();
      if (alone) backend.stream().synchronize();
    }
    if (part) set->parameters.back() = part->keep(backend, set->parameters.back());
  }
  if (part) part->offer(set);
  return set;
}

namespace {
// The parameter of a matrix of its own, as kernels have it: no table, nothing cut or transposed; else null.
const Parameter* whole_matrix(const Manifest& manifest, const StoredTensor& tensor) {
  const FileTensor& file = tensor.file();
  if (file.pieces.size() != 1 || file.shape.size() != 2 || !file.name.ends_with(".weight")) return nullptr;
  const Parameter& p = manifest.parameter(file.pieces[0].parameter);
  return !p.tied && !file.pieces[0].transposed && file.pieces[0].column_step == 1 && file.pieces[0].rows == file.rows() ? &p : nullptr;
}
}  // namespace

bool writes_int4(const Manifest& manifest, const StoredTensor& tensor, const Profile& profile) {
  const Parameter* p = whole_matrix(manifest, tensor);
  return p && computes_with_int4(*p, profile);
}

bool writes_e4m3(const Manifest& manifest, const StoredTensor& tensor, const Profile& profile) {
  if (keeps_e4m3(manifest, tensor, profile)) return true;
  const Parameter* p = whole_matrix(manifest, tensor);
  const LowBitFormat format = p ? low_bit_format_of(weight_bits(*p, profile)) : LowBitFormat::none;
  return format == LowBitFormat::fp8 || format == LowBitFormat::mxfp8 || format == LowBitFormat::mxfp8_both;
}

bool keeps_e4m3(const Manifest& manifest, const StoredTensor& tensor, const Profile& profile) {
  const Parameter& p = manifest.parameter(tensor.file().pieces[0].parameter);  // all pieces are of linear layers or of experts alike
  if (takes_format(p, profile, LowBitFormat::fp8)) return tensor.form().keeps_blocks(tensor.file(), p);
  return takes_format(p, profile, LowBitFormat::mxfp8) && tensor.as() == StoredAs::mxfp8 && tensor.form().keeps_groups(tensor.file(), p);
}

E4m3Matrix read_e4m3(const Manifest& manifest, const StoredTensor& tensor, const Profile& profile) {
  const FileTensor& file = tensor.file();
  const Parameter& p = manifest.parameter(file.pieces[0].parameter);
  const LowBitFormat format = low_bit_format_of(weight_bits(p, profile));
  const bool blocks = format == LowBitFormat::fp8;
  const std::int64_t columns = file.columns(), width = blocks ? kFp8Block : kQuantisedGroup, across = (columns + width - 1) / width;
  E4m3Matrix matrix;
  const bool own = keeps_e4m3(manifest, tensor, profile);
  if (own && !blocks) {
    read_groups(tensor, 0, file.rows(), matrix.numbers, matrix.group_scales);
    return matrix;
  }
  matrix.numbers.resize(static_cast<std::size_t>(file.rows() * columns));
  if (own) {
    read_blocks(tensor, 0, file.rows(), matrix.numbers.data(), matrix.block_scales);
    return matrix;
  }
  if (blocks) matrix.block_scales.resize(static_cast<std::size_t>((file.rows() + kFp8Block - 1) / kFp8Block * across));
  else matrix.group_scales.resize(static_cast<std::size_t>(file.rows() * across));
  for (const Part& part : parts_of(tensor, file.pieces[0])) {
    const ConvertedPart converted = convert(part, p, profile);
    const LowBitShape shape{part.rows, columns, format};
    for (std::int64_t n = 0; n < part.rows; ++n) {
      const std::int64_t row = part.row + n, lane = n % 16;
      const std::uint8_t *panel = converted.bytes.data() + n / 16 * shape.panel_bytes(), *values = panel + shape.scale_bytes();
      for (std::int64_t k = 0; k < columns; ++k) matrix.numbers[static_cast<std::size_t>(row * columns + k)] = values[k * 16 + lane];
      for (std::int64_t g = 0; g < across; ++g) {
        float scale = 0;
        std::uint8_t exponent = 0;
        if (blocks) std::memcpy(&scale, panel + g * 4, 4);
        else exponent = panel[g * 16 + lane];
        if (scale != scale || exponent == 255)
          fail(ErrorCode::numeric, "row {} of '{}' has a value that is no number: a model with such values is not saved", row, file.name);
        // Of zeros, any scale: one that readers take.
        if (blocks) matrix.block_scales[static_cast<std::size_t>(row / kFp8Block * across + g)] = scale > 0 ? scale : 1.0f;
        else matrix.group_scales[static_cast<std::size_t>(row * across + g)] = exponent > 0 ? exponent : std::uint8_t{127};
      }
    }
  }
  return matrix;
}

Int4Matrix read_int4(const Manifest& manifest, const StoredTensor& tensor, const Profile& profile) {
  const FileTensor& file = tensor.file();
  const Parameter& p = manifest.parameter(file.pieces[0].parameter);
  const std::int64_t columns = file.columns(), groups = QuantisedShape{1, columns, 4}.groups();
  Int4Matrix matrix{std::vector<std::uint32_t>(static_cast<std::size_t>(file.rows() * int4_words(columns))),
                    std::vector<Bf16>(static_cast<std::size_t>(file.rows() * groups))};
  for (const Part& part : parts_of(tensor, file.pieces[0]))
    panels_to_words(convert(part, p, profile).bytes.data(), {part.rows, columns, 4}, matrix.words.data() + part.row * int4_words(columns),
                    matrix.scales.data() + part.row * groups);
  return matrix;
}

bool writes_mxfp4(const Manifest& manifest, const StoredTensor& tensor, const Profile& profile) {
  const FileTensor& file = tensor.file();
  return file.shape.size() == 3 && file.shape[1] % kMxfp4Group == 0 && std::all_of(file.pieces.begin(), file.pieces.end(), [&](const Piece& piece) {
           return piece.transposed && low_bit_format_of(weight_bits(manifest.parameter(piece.parameter), profile)) == LowBitFormat::mxfp4;
         });
}

Mxfp4Experts read_mxfp4_experts(const Manifest& manifest, const StoredTensor& tensor, const Profile& profile) {
  Mxfp4Experts matrix;
  if (!tensor.is_rounded(manifest, profile) && tensor.as() == StoredAs::mxfp4) {
    tensor.read_mxfp4_bytes(matrix.blocks, matrix.scales);
    return matrix;
  }
  const FileTensor& file = tensor.file();
  const std::int64_t experts = file.shape[0], inputs = file.shape[1], outputs = file.shape[2], groups = inputs / kMxfp4Group;
  std::vector<float> values(static_cast<std::size_t>(file.size()));
  tensor.read(0, file.rows(), values.data());
  as_computed(manifest, tensor, profile, values);
  matrix.scales.resize(static_cast<std::size_t>(experts * outputs * groups));
  matrix.blocks.resize(matrix.scales.size() * kMxfp4Group / 2);
  for (std::int64_t row = 0; row < experts * outputs; ++row)
    encode_mxfp4(values.data() + row / outputs * inputs * outputs + row % outputs, outputs, groups, matrix.blocks.data() + row * groups * kMxfp4Group / 2,
                 matrix.scales.data() + row * groups);
  return matrix;
}

void as_computed(const Manifest& manifest, const StoredTensor& tensor, const Profile& profile, std::vector<float>& values) {
  const FileTensor& file = tensor.file();
  for (const Piece& piece : file.pieces) {
    const Parameter& p = manifest.parameter(piece.parameter);
    if (!is_low_bit_format(weight_bits(p, profile))) continue;
    for (const Part& part : parts_of(tensor, piece)) {
      const ConvertedPart converted = convert(part, p, profile);
      const LowBitShape shape{converted.rows, p.inputs, low_bit_format_of(weight_bits(p, profile))};
      Parameter whole = p;  // of these rows alone: offset() says where its panels have an element
      whole.outputs = converted.rows;
      std::vector<float> image(static_cast<std::size_t>(whole.item_size()));
      decode_panels(converted.bytes.data(), shape, image.data());
      const auto value = [&](std::int64_t r, std::int64_t c) -> float& {  // of the piece
        return values[static_cast<std::size_t>((piece.row_begin + r) * file.columns() + piece.column_begin + c * piece.column_step)];
      };
      for (std::int64_t n = 0; n < converted.rows; ++n)
        for (std::int64_t k = 0; k < p.inputs; ++k) {
          const float number = image[static_cast<std::size_t>(whole.offset(0, n, k))];
          if (part.by_outputs) value(k, part.row + n) = number;
          else if (piece.transposed) value(part.row + k, n) = number;
          else value(part.row + n, k) = number;
        }
    }
  }
}

}  // namespace lockstep
