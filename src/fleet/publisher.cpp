#include "fleet/publisher.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/seconds.h"
#include "checkpoint/adapter_folder.h"
#include "sync/channel.h"

namespace lockstep {
namespace {
constexpr double kStoreSeconds = 60;  // that another writer of the store is waited for

// Whether an adapter with these files is what changed since an adapter, of the same shape over the same weights. Weights follow weights: what differs in
// their config.json is then the error of push_tensors.
bool may_follow(const SnapshotTexts& texts, const SnapshotManifest& manifest) {
  const bool adapter = std::any_of(texts.begin(), texts.end(), [](const auto& text) { return text.first == kAdapterBaseFile; });
  if (!adapter) return manifest.file(kAdapterBaseFile) == nullptr;
  return std::all_of(texts.begin(), texts.end(), [&](const auto& text) {
    const SnapshotFile* file = manifest.file(text.first);
    return file && file->sha256 == sha256_hex(text.second);
  });
}
}  // namespace

SnapshotTexts model_texts(const std::filesystem::path& folder) {
  SnapshotTexts texts;
  for (const std::string& name : kSnapshotFiles) {
    std::error_code error;
    if (std::filesystem::is_regular_file(folder / name, error)) texts.emplace_back(name, read_file(folder / name, kMostSnapshotFileBytes));
  }
  return texts;
}

Publisher::Publisher(std::shared_ptr<Store> store, std::string channel, SnapshotTexts texts, std::shared_ptr<Runtime> runtime,
                     std::shared_ptr<Executor> executor, const PublisherOptions& options)
    : store_(std::move(store)),
      channel_(std::move(channel)),
      texts_(std::move(texts)),
      runtime_(std::move(runtime)),
      executor_(std::move(executor)),
      options_(options) {}

PublishedSnapshot Publisher::publish(const std::shared_ptr<const WeightSet>& weights, const std::string& held_by) {
  return push(ModelTensors(runtime_->model->manifest(), runtime_->profile), weights->parameters, texts_, held_by, weights_);
}

PublishedSnapshot Publisher::publish(const std::shared_ptr<const AdapterWeights>& adapter, const AdapterBase& base, const std::string& held_by) {
  const SnapshotTexts texts = {{kAdapterConfig, adapter_config_text(*adapter->layout, base.name)},
                               {kAdapterBaseFile, nlohmann::json{{"weights_sha256", base.sha256}}.dump()}};
  return push(ModelTensors(adapter->layout->manifest()), adapter->parameters, texts, held_by, adapter_);
}

PublishedSnapshot Publisher::push(const ModelTensors& tensors, const std::vector<Buffer>& buffers, const SnapshotTexts& texts, const std::string& held_by,
                                  Last& last) {
  const auto began = std::chrono::steady_clock::now();
  PublishedSnapshot published;
  const bool anew = !last.id.empty() && last.texts != texts;
  if (anew) last = {};
  const std::optional<Channel> before = read_channel_record(*store_, channel_);
  std::map<std::string, std::string> changed;  // bytes of tensors that are not those of last time
  for (const ModelTensors::Group& group : tensors.groups([](std::size_t) { return true; })) {
    const auto reading = std::chrono::steady_clock::now();
    const auto bits = executor_->run(WorkClass::training, [&] { return read_parameters(runtime_->backend, buffers, group.parameters); }).get();
    published.read_seconds += seconds_since(reading);
    for (const std::size_t i : group.tensors) {
      const TensorShape& shape = tensors.shapes()[i];
      std::string bytes = tensors.bytes(i, bits, shape.type);
      if (const auto before_it = last.bytes.find(shape.name); before_it == last.bytes.end() || before_it->second != bytes)
        changed.emplace(shape.name, std::move(bytes));
    }
  }
  PushOptions push{.parent = last.id, .profile = runtime_->profile.name, .threads = options_.threads};
  if (!last.id.empty()) {
    push.parent_tensors = [&](const TensorShape& wanted) -> std::optional<std::string> {
      const auto found = last.bytes.find(wanted.name);
      if (found == last.bytes.end() || found->second.size() != wanted.bytes) return std::nullopt;
      return found->second;
    };
  } else if (before && !options_.first_whole && !anew) {
    const Snapshot there = load_snapshot(*store_, before->target);
    if (may_follow(texts, there.manifest)) push.parent = there.id;
  }
  const std::string expected = before ? before->target : std::string();
  if (held_by.empty() && !last.id.empty() && expected != last.id)
    fail(ErrorCode::already_exists, "channel '{}' of '{}' points at {}, and this trainer published {} last; somebody else moves it", channel_, store_->label(),
         expected.empty() ? "nothing" : expected, last.id);
  push.written = [&](const Written& now) {
    published.sequence = held_by.empty() ? move_channel(*store_, channel_, now.id, options_.transition, expected).sequence
                                         : move_channel(*store_, held_by, now.id, "immediate", "").sequence;
  };
  const auto read = [&](std::size_t i) {
    const auto now = changed.find(tensors.shapes()[i].name);
    return now != changed.end() ? now->second : last.bytes.at(tensors.shapes()[i].name);
  };
  while (true) {
    try {
      published.written = push_tensors(*store_, {tensors.shapes(), read}, texts, push);
      break;
    } catch (const Error& e) {  // another writer has the store: a mirror, a push, a prune
      if (e.code() != ErrorCode::resource_exhausted || seconds_since(began) > kStoreSeconds) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  last.id = published.written.id;
  last.texts = texts;
  for (auto& [name, bytes] : changed) last.bytes[name] = std::move(bytes);
  published.seconds = seconds_since(began);
  return published;
}

}  // namespace lockstep
