#include "fleet/sampler_snapshots.h"

#include <chrono>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "fleet/store_turn.h"
#include "serving/loading.h"
#include "sync/channel.h"
#include "sync/downloads.h"
#include "sync/snapshot_ways.h"

namespace lockstep {

SamplerSnapshots::SamplerSnapshots(std::unique_ptr<Publisher> publisher, std::string base_name, std::shared_ptr<const ModelReader> reader,
                                   std::filesystem::path downloads, int threads)
    : publisher_(std::move(publisher)), base_{{}, std::move(base_name)}, reader_(std::move(reader)), downloads_(std::move(downloads)), threads_(threads) {}

SavedSnapshot SamplerSnapshots::save(const std::shared_ptr<const WeightSet>& weights, const std::shared_ptr<const AdapterWeights>& adapter,
                                     const std::string& name, const Note& note) {
  const std::lock_guard one_at_a_time(mutex_);
  if (adapter && base_.sha256.empty()) base_.sha256 = base_sha256(reader_);
  SavedSnapshot saved;
  const Publisher::Hold hold = [&](Store&, const Written& now) { saved.channel = hold_locked(now.id, name, note); };
  const PublishedSnapshot published = adapter ? publisher_->publish(adapter, base_, hold) : publisher_->publish(weights, hold);
  const Written& written = published.written;
  saved.id = written.id;
  saved.bytes = static_cast<std::int64_t>(written.payload_bytes + written.manifest_bytes + written.file_bytes);
  log_info("published", {{"name", saved.channel},
                         {"snapshot", saved.id},
                         {"bytes", written.payload_bytes},
                         {"seconds", published.seconds},
                         {"read_seconds", published.read_seconds}});
  return saved;
}

void SamplerSnapshots::tidy() {
  const std::lock_guard one_at_a_time(mutex_);
  publisher_->make_ways();
}

std::string SamplerSnapshots::hold(const std::string& id, const std::string& name, const Note& note) {
  Store& store = publisher_->store();
  const auto lock = in_store_turn(std::chrono::steady_clock::now(), [&] { return store.writing(); });  // nobody prunes it meanwhile
  if (!store.size(StoredKind::manifest, id)) fail(ErrorCode::not_found, "snapshot {} is not in '{}' any more", id, store.label());
  return hold_locked(id, name, note);
}

std::string SamplerSnapshots::hold_locked(const std::string& id, const std::string& name, const Note& note) const {
  // The channel that replicas follow moves, so it holds nothing for long, also when it is not there yet.
  return hold_snapshot(publisher_->store(), id, name == publisher_->channel() ? std::string() : name, note);
}

void SamplerSnapshots::release(const std::string& channel, const std::string& id) { release_snapshot(publisher_->store(), channel, id); }

WeightImages SamplerSnapshots::read(const std::string& id, const Manifest& manifest) const {
  const Store& store = publisher_->store();
  if (!store.is_far()) return read_near(store, id, manifest);
  const std::lock_guard one_at_a_time(downloading_);  // the folder is one reader's
  Downloads near(store, downloads_, DownloadOptions{});
  WeightImages images = read_near(near, id, manifest);
  near.clear();
  return images;
}

WeightImages SamplerSnapshots::read_near(const Store& store, const std::string& id, const Manifest& manifest) const {
  const ModelTensors tensors(manifest);
  const SnapshotChain chain(store, id, std::nullopt, plan_path(store, id, "").ids);
  WeightImages images(manifest.parameters().size());
  std::vector<std::mutex> busy(images.size());  // a parameter may be made of several tensors, and a tensor fill several
  ThreadPool(threads_).run(std::ssize(tensors.shapes()), [&](std::int64_t at) {
    const auto i = static_cast<std::size_t>(at);
    const TensorShape& shape = tensors.shapes()[i];
    const SnapshotTensor* found = chain.manifest().find(shape.name);
    if (!found || found->shape.shape != shape.shape)
      fail(ErrorCode::corrupt_file, "snapshot {} has the tensor {} as {}, the model as {}", id.substr(0, 12), quoted_name(shape.name),
           found ? shape_text(found->shape.shape) : "nothing", shape_text(shape.shape));
    const std::string bytes = chain.tensor(*found);
    std::vector<std::unique_lock<std::mutex>> locks;
    for (const ParameterId one : tensors.parameters(i)) locks.emplace_back(busy[static_cast<std::size_t>(one)]);  // ascending, so that none waits in a circle
    tensors.put(i, bytes, found->shape.type, images);
  });
  return images;
}

}  // namespace lockstep
