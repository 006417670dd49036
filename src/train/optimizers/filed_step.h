// An AdamW step whose state may lie in a file (tensor/file_memory.h). What lies there is stepped in strips: each is read into a buffer that
// the caches hold, stepped, and written back, so that the state never stands in this process's memory and costs no page faults. AdamW
// works on elements alone: no bit changes.
//   launch_adamw(backend, file, step.of(...));
#pragma once
#include <memory>

#include "kernels/backend.h"
#include "kernels/optimizer/optimizer.h"

namespace lockstep {

class FileMemory;

// `file` null, or without the step's state: one launch. Otherwise views in the file are read and written through it.
void launch_adamw(Backend& backend, const std::shared_ptr<FileMemory>& file, const AdamW& step);

}  // namespace lockstep
