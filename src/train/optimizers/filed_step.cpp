#include "train/optimizers/filed_step.h"

#include <algorithm>
#include <vector>

#include "kernels/launch.h"
#include "tensor/file_memory.h"

namespace lockstep {
namespace {
constexpr std::int64_t kStrip = std::int64_t{1} << 18;  // elements: a megabyte of each of the state's parts
constexpr std::int64_t kPieces = 8;                     // of a strip, that threads copy

// Part of a flat view; no view if there is none.
View part(const View& v, std::int64_t begin, std::int64_t count) { return v ? v.column_range(begin, count) : v; }

struct Staged {
  View filed, buffer;
};

void copy_in_pieces(Backend& backend, const std::shared_ptr<FileMemory>& file, const std::vector<Staged>& parts,
                    void (FileMemory::*copy)(const View&, const View&) const, bool to_file) {
  backend.stream().enqueue([&threads = backend.device().threads(), file, parts, copy, to_file] {
    threads.run(static_cast<std::int64_t>(parts.size()) * kPieces, [&](std::int64_t i) {
      const Staged& one = parts[static_cast<std::size_t>(i / kPieces)];
      const std::int64_t size = one.filed.size(), begin = size * (i % kPieces) / kPieces, count = size * (i % kPieces + 1) / kPieces - begin;
      const View filed = part(one.filed, begin, count), buffer = part(one.buffer, begin, count);
      (file.get()->*copy)(to_file ? filed : buffer, to_file ? buffer : filed);
    });
  });
}
}  // namespace

void launch_adamw(Backend& backend, const std::shared_ptr<FileMemory>& file, const AdamW& step) {
  const View state[] = {step.master, step.m, step.v};
  if (!file || std::none_of(std::begin(state), std::end(state), [&](const View& v) { return file->holds(v); }))
    return backend.launch(&KernelTable::adamw, step);
  const std::int64_t size = step.m.size();
  std::vector<Buffer> buffers;
  for (std::size_t i = 0; i < std::size(state); ++i)
    buffers.push_back(file->holds(state[i]) ? backend.device().allocate(DType::f32, 1, std::min(size, kStrip), MemoryCategory::workspace) : Buffer());
  for (std::int64_t begin = 0; begin < size; begin += kStrip) {
    const std::int64_t count = std::min(kStrip, size - begin);
    std::vector<Staged> staged;
    const auto stage = [&](std::size_t i) {
      const View filed = part(state[i], begin, count);
      if (!buffers[i]) return filed;
      staged.push_back({filed, part(buffers[i].view(), 0, count)});
      return staged.back().buffer;
    };
    AdamW strip = step;
    strip.master = stage(0), strip.m = stage(1), strip.v = stage(2);
    strip.master_out = step.master_out.address == step.master.address ? strip.master : part(step.master_out, begin, count);
    strip.compute_out = part(step.compute_out, begin, count);
    strip.gradient = part(step.gradient, begin, count);
    copy_in_pieces(backend, file, staged, &FileMemory::load, false);
    backend.launch(&KernelTable::adamw, strip);
    copy_in_pieces(backend, file, staged, &FileMemory::store, true);
  }
  backend.stream().synchronize();  // a file error is then this step's error
}

}  // namespace lockstep
