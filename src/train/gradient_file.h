// Saves gradients that no optimizer step has used to a file (base/checked_file.h), with the data of an open call: a device's numbers exactly as they
// are in memory. Only the process that wrote a file reads it.
//   CheckedWriter file(gradient_file(folder, rank)); write_view(file, stream, bins); file.commit();
#pragma once
#include <filesystem>
#include <vector>

#include "base/checked_file.h"
#include "tensor/stream.h"
#include "train/data.h"

namespace lockstep {

// The file of one rank in the folder of a trainer's gradients.
std::filesystem::path gradient_file(const std::filesystem::path& folder, int rank);

// Write and read a view without gaps, a quarter of a megabyte at a time. Error corrupt_file of read_view, if the file's view has another size; the
// view may then be partly overwritten.
void write_view(CheckedWriter& file, Stream& stream, const View& view);
void read_view(CheckedReader& file, Stream& stream, const View& view);

void write_sequences(CheckedWriter& file, const std::vector<TrainSequence>& data);
std::vector<TrainSequence> read_sequences(CheckedReader& file);

}  // namespace lockstep
