#include "sync/snapshot_pull.h"

#include <nlohmann/json.hpp>

#include "base/bounded_json.h"
#include "base/file.h"
#include "base/thread_pool.h"
#include "sync/downloads.h"
#include "sync/snapshot_ways.h"

namespace lockstep {
namespace {
constexpr std::uint64_t kPullWindowBytes = std::uint64_t{512} << 20;  // of tensors that are ready and not yet written
}  // namespace

std::string pulled_snapshot(const std::filesystem::path& folder) {
  std::error_code error;
  const std::filesystem::path mark = folder / kPulledMark;
  if (!std::filesystem::is_regular_file(mark, error) || std::filesystem::file_size(mark, error) > 1000) return "";
  const auto json = read_json_or_null(read_file(mark, 1000));
  const std::string id = json.is_object() && json.contains("id") && json["id"].is_string() ? json["id"].get<std::string>() : "";
  return is_digest(id, 64) ? id : "";
}

Pulled pull_snapshot(const Store& far, const std::string& id, const std::filesystem::path& to, Overwrite overwrite, const PullOptions& options) {
  check_output_folder(to, overwrite);
  std::optional<Downloads> near;
  if (far.is_far()) {
    std::filesystem::path beside = to.has_filename() ? to : to.parent_path();
    beside += ".lockstep.downloads";
    near.emplace(far, options.downloads.empty() ? beside : options.downloads, DownloadOptions{options.parallel, options.downloaded});
  }
  const Store& store = near ? static_cast<const Store&>(*near) : far;
  const SnapshotPath path = plan_path(store, id, options.local ? pulled_snapshot(*options.local) : "");
  const SnapshotChain chain(store, id, options.local, path.ids);
  if (near) {
    const auto objects = chain.objects();
    if (options.begin_download) options.begin_download(near->missing(objects));
    near->fetch(objects);
  }
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
  write_folder_tensors(out.partial(), shapes, read, options.most_shard_bytes, chain.manifest().file(kAdapterConfig) ? "adapter_model" : "model");
  write_file_atomic(out.partial() / kPulledMark, nlohmann::json{{"id", id}}.dump() + "\n");
  out.commit();
  const Pulled pulled{chain.manifest().full_bytes(), chain.fetched(), near ? near->arrived() : 0, path.ids.size()};
  if (near) near->clear();
  return pulled;
}

}  // namespace lockstep
