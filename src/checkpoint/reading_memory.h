// The memory that reading a model's weights needs beside the weights themselves: a part of a tensor per thread, or a whole matrix where the file has
// it transposed (an expert of gpt_oss). Knows no file.
//   check_memory(weights + reading_bytes(model.manifest(), threads), "the model");
#pragma once
#include <cstdint>

#include "model/manifest.h"

namespace lockstep {

// Threads that read, at most.
inline constexpr std::int64_t kMostReaders = 16;

// Rows of a part, a multiple of kPartRows (model/compute_copy.h).
std::int64_t rows_at_once(std::int64_t columns);
// Columns of the file's tensor that are the piece's.
std::int64_t own_columns(const Piece& piece, std::int64_t columns);

// The most that ModelReader::masters has in memory at a time beside the masters.
std::int64_t masters_reading_bytes(const Manifest& manifest);

// The most memory that ModelReader::weight_set needs at a time with `threads` threads, under any profile, bytes.
std::int64_t reading_bytes(const Manifest& manifest, std::int64_t threads);

}  // namespace lockstep
