// An AdamW step whose state may be in a file (tensor/file_memory.h). State in a file is updated in strips: each is read into a buffer that fits
// the caches, updated, and written back, so that the state is never in this process's memory as a whole and costs no page faults.
//   launch_adamw(backend, file, step.of(...));
// AdamW is elementwise, so no bit changes.
#pragma once
#include <memory>

#include "kernels/backend.h"
#include "kernels/optimizer/optimizer.h"

namespace lockstep {

class FileMemory;

// `file` null, or without the step's state: one launch. Otherwise views in the file are read and written through it.
void launch_adamw(Backend& backend, const std::shared_ptr<FileMemory>& file, const AdamW& step);

}  // namespace lockstep
