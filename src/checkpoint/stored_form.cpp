#include "checkpoint/stored_form.h"

#include <algorithm>

#include "model/low_bit_weights.h"
#include "model/weights.h"
#include "numerics/low_bit.h"
#include "numerics/mxfp4.h"

namespace lockstep {

namespace {
bool in_turn(const Piece& piece) { return piece.column_step != 1; }  // with another piece, column by column

bool is_own_matrix(const FileTensor& file, const Parameter& p) { return file.shape.size() == 2 && file.name.ends_with(".weight") && !p.tied; }
}  // namespace

StoredForm form_of(const FileTensor& file, StoredAs as, SafetensorsType type, bool scales_fit) {
  const std::size_t rank = file.shape.size();
  return {as, type, scales_fit, 0, rank > 2 ? file.shape[rank - 2] : file.rows()};
}

std::string StoredForm::name() const {
  switch (as) {
    case StoredAs::fp8:
      return "FP8, blocks of 128 x 128";
    case StoredAs::mxfp8:
      return "MXFP8";
    case StoredAs::int4:
      return "INT4, groups of 32";
    case StoredAs::mxfp4:
      return "MXFP4";
    case StoredAs::numbers:
      break;
  }
  return std::string(safetensors_type_name(type));
}

double StoredForm::bits_a_weight() const {
  const double bits = 8.0 * static_cast<double>(safetensors_type_bytes(type));
  switch (as) {
    case StoredAs::numbers:
      break;
    case StoredAs::mxfp4:
      return 4 + bits / kMxfp4Group;
    case StoredAs::int4:
      return 4 + bits / kQuantisedGroup;
    case StoredAs::fp8:
    case StoredAs::mxfp8:
      return 8 + bits / static_cast<double>(block_rows() * block_columns());
  }
  return bits;
}

bool StoredForm::keeps_blocks(const FileTensor& file, const Parameter& p) const {
  return as == StoredAs::fp8 && is_own_matrix(file, p) &&
         std::all_of(file.pieces.begin(), file.pieces.end(), [&](const Piece& piece) { return !in_turn(piece) && begins_a_block(piece); });
}

bool StoredForm::keeps_groups(const FileTensor& file, const Parameter& p) const {
  return (as == StoredAs::fp8 || as == StoredAs::mxfp8) && scales_fit && is_own_matrix(file, p) &&
         std::all_of(file.pieces.begin(), file.pieces.end(), [&](const Piece& piece) { return !in_turn(piece) && !piece.transposed; });
}

bool StoredForm::is_rounded(const FileTensor& file, const Manifest& manifest, const Profile& profile) const {
  return std::any_of(file.pieces.begin(), file.pieces.end(), [&](const Piece& piece) {
    const Parameter& p = manifest.parameter(piece.parameter);
    switch (compute_dtype(p, profile)) {
      case DType::f32:
        return false;
      case DType::bf16:  // which has all scales of mxfp4
        if (as == StoredAs::numbers) return type != SafetensorsType::bf16;
        return as == StoredAs::int4 || (as != StoredAs::mxfp4 && !scales_fit);
      default:
        break;
    }
    if (as == StoredAs::numbers || profile.trains_all_weights()) return true;  // what a step quantises are the decoded numbers
    switch (low_bit_format_of(weight_bits(p, profile))) {
      case LowBitFormat::int4:
        return as != StoredAs::int4 || !scales_fit || piece.transposed || in_turn(piece);
      case LowBitFormat::fp8:
        if (keeps_blocks(file, p)) return false;
        return as != StoredAs::fp8 || !scales_fit || in_turn(piece) || !begins_a_block(piece);  // numbers that the quantiser makes again
      case LowBitFormat::mxfp8:                                                                 // whose quantiser keeps numbers in E2M1
        return !keeps_groups(file, p) && (as != StoredAs::mxfp4 || !scales_fit || !piece.transposed);
      case LowBitFormat::mxfp4:  // whose quantiser keeps such numbers
        return as != StoredAs::mxfp4 || !scales_fit || !piece.transposed;
      case LowBitFormat::mxfp8_both:
      case LowBitFormat::none:
        break;
    }
    return true;
  });
}

}  // namespace lockstep
