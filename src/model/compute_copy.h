// Makes the compute copy of a parameter piece by piece, so that no fp32 image of the whole is needed. Any thread converts rows of an item (rounds
// them to bf16, quantises them, or takes them as stored); the thread with the stream writes them to the buffer. Same bits as make_compute_copy
// (model/weights.h).
//   Buffer copy = allocate_compute_copy(backend, parameter, profile);
//   write_part(backend, parameter, profile, copy, convert_rows(parameter, profile, item, row, 128, values));
#pragma once
#include <functional>

#include "model/weights.h"

namespace lockstep {

// Parts begin at multiples of this many rows: whole panels, and whole blocks of fp8.
inline constexpr std::int64_t kPartRows = 128;

struct ConvertedPart {
  std::int64_t item = 0, row = 0, rows = 0;
  std::vector<float> numbers;       // in the buffer's layout; of parameters in f32 and bf16
  std::vector<std::uint8_t> bytes;  // of quantised ones
};

// Bytes of the parameter's compute copy.
std::int64_t computed_bytes(const Parameter& parameter, const Profile& profile);
std::int64_t computed_bytes(const Manifest& manifest, const Profile& profile);  // of all parameters
Buffer allocate_compute_copy(Backend& backend, const Parameter& parameter, const Profile& profile);

// Rows [row, row + rows) of an item; `values` [rows][inputs].
ConvertedPart convert_rows(const Parameter& parameter, const Profile& profile, std::int64_t item, std::int64_t row, std::int64_t rows, const float* values);
// A whole item that its file holds transposed. Calls read(input, count, values) for consecutive runs of at most `at_once` inputs, to fill `values`
// [count][outputs].
ConvertedPart convert_transposed(const Parameter& parameter, const Profile& profile, std::int64_t item, std::int64_t at_once,
                                 const std::function<void(std::int64_t input, std::int64_t count, float* values)>& read);
// Rows of an item that files hold as int4 (numerics/int4_words.h), under a profile that takes them (takes_format): nothing is rounded.
ConvertedPart convert_int4(const Parameter& parameter, const Profile& profile, std::int64_t item, std::int64_t row, std::int64_t rows,
                           const std::uint32_t* words, const Bf16* scales);

// Rows of an item, from one on at which a block begins, that files hold in blocks of fp8, under a profile that takes them (takes_format): `codes`
// [rows][inputs] of E4M3, `scales` [blocks of rows][blocks of inputs]. Nothing is rounded.
ConvertedPart convert_fp8(const Parameter& parameter, const Profile& profile, std::int64_t item, std::int64_t row, std::int64_t rows, const std::uint8_t* codes,
                          const float* scales);
// The same of any rows in groups of mxfp8: `exponents` [rows][groups of inputs].
ConvertedPart convert_mxfp8(const Parameter& parameter, const Profile& profile, std::int64_t item, std::int64_t row, std::int64_t rows,
                            const std::uint8_t* codes, const std::uint8_t* exponents);

void write_part(Backend& backend, const Parameter& parameter, const Profile& profile, const Buffer& copy, const ConvertedPart& part);

}  // namespace lockstep
