// An AdamW step whose state may be in a file (tensor/file_memory.h). It goes through the state in strips that fit the caches: reads one into a
// buffer, updates it, writes it back. So the state is never in memory as a whole and causes no page faults. AdamW is elementwise, so no bit changes.
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
