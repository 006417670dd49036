#include "sync/snapshot_pull.h"

#include "base/file.h"
#include "base/thread_pool.h"

namespace lockstep {
namespace {
constexpr std::uint64_t kPullWindowBytes = std::uint64_t{512} << 20;  // of tensors that are ready and not yet written
}  // namespace

Pulled pull_snapshot(const Store& store, const std::string& id, const std::filesystem::path& to, Overwrite overwrite, const PullOptions& options) {
  const SnapshotChain chain(store, id, options.local);
  const std::vector<SnapshotTensor>& tensors = chain.manifest().tensors;
  if (options.begin) options.begin(tensors.size(), chain.manifest().full_bytes());
  OutputFolder out(to, overwrite);
  for (const SnapshotFile& file : chain.manifest().files) write_file_atomic(out.partial() / file.name, read_snapshot_file(store, id, file));

  ThreadPool pool(options.threads);
  std::vector<TensorShape> shapes;
  for (const SnapshotTensor& tensor : tensors) shapes.push_back(tensor.shape);
  std::vector<std::string> ready(tensors.size());
  std::size_t end = 0;  // tensors below it were read
  std::mutex mutex;     // of progress
  const auto read = [&](std::size_t i) {
    if (i >= end) {
      const std::size_t begin = i;
      std::uint64_t window = 0;
      while (end < tensors.size() && (end == begin || window + shapes[end].bytes <= kPullWindowBytes)) window += shapes[end++].bytes;
      pool.run(static_cast<std::int64_t>(end - begin), [&](std::int64_t at) {
        const std::size_t t = begin + static_cast<std::size_t>(at);
        ready[t] = chain.tensor(tensors[t]);
        kill_point("pull.tensor");
        const std::lock_guard lock(mutex);
        if (options.progress) options.progress(1, shapes[t].bytes);
      });
    }
    return std::move(ready[i]);
  };
  write_folder_tensors(out.partial(), shapes, read, options.most_shard_bytes);
  out.commit();
  return {chain.manifest().full_bytes(), chain.fetched()};
}

}  // namespace lockstep
