#include "sync/snapshot_write.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/thread_pool.h"
#include "numerics/profile.h"
#include "sync/arc_folder.h"
#include "sync/snapshot_ways.h"

namespace lockstep {
namespace fs = std::filesystem;

const std::vector<std::string> kSnapshotFiles = {
    "adapter_config.json", "added_tokens.json", "chat_template.jinja",     "chat_template.json", "config.json",     "generation_config.json",
    "merges.txt",          "tiktoken.model",    "special_tokens_map.json", "tokenizer.json",     "tokenizer.model", "tokenizer_config.json",
    "vocab.json"};

namespace {
constexpr std::uint64_t kObjectBytes = std::uint64_t{1} << 30;      // an object ends with the payload that passes this
constexpr std::uint64_t kPushWindowBytes = std::uint64_t{1} << 30;  // of tensors whose payloads are held at once

// Encodes every tensor against the parent's, writes payloads into objects, and the manifest behind them.
Written write_snapshot(Store& store, const PushedTensors& source, std::vector<SnapshotFile> files, const std::string& profile, const PushOptions& options) {
  std::optional<SnapshotChain> parent;
  if (!options.parent.empty()) {
    if (options.parent_tensors) parent.emplace(store, options.parent, options.parent_tensors, "the publisher's memory");
    else if (options.local) parent.emplace(store, options.parent, options.local);
    else parent.emplace(store, options.parent, std::nullopt, plan_path(store, options.parent, "").ids);
  }
  SnapshotManifest manifest;
  manifest.parent = options.parent;
  manifest.profile = profile;
  manifest.files = std::move(files);
  manifest.tensors.resize(source.tensors.size());
  Written written;
  if (options.begin) {
    std::uint64_t all = 0;
    for (const TensorShape& tensor : source.tensors) all += tensor.bytes;
    options.begin(source.tensors.size(), all);
  }

  // Large ones first, so that threads end together; the order decides where payloads stand in their objects, and is the same everywhere.
  std::vector<std::size_t> order(source.tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return source.tensors[a].bytes > source.tensors[b].bytes; });

  std::unique_ptr<Store::Writer> object;
  std::vector<std::size_t> in_object;  // tensors with payloads in it
  const auto end_object = [&] {
    if (!object) return;
    const std::string digest = object->commit();
    for (const std::size_t i : in_object) manifest.tensors[i].object = digest;
    object.reset();
    in_object.clear();
  };
  ThreadPool pool(options.threads);
  std::vector<EncodedTensor> encoded(source.tensors.size());
  for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    std::uint64_t window = 0;
    while (end < order.size() && (end == begin || window + source.tensors[order[end]].bytes <= kPushWindowBytes)) window += source.tensors[order[end++]].bytes;
    std::mutex mutex;  // of progress
    pool.run(static_cast<std::int64_t>(end - begin), [&](std::int64_t at) {
      const std::size_t i = order[begin + static_cast<std::size_t>(at)];
      SnapshotTensor& tensor = manifest.tensors[i];
      tensor.shape = source.tensors[i];
      const SnapshotTensor* old = parent ? parent->manifest().find(tensor.shape.name) : nullptr;
      if (old && (old->shape.type != tensor.shape.type || old->shape.shape != tensor.shape.shape)) old = nullptr;
      const auto known = old && source.known ? source.known(i) : std::nullopt;
      if (known && known->base == old->result) {
        tensor.result = known->result;
        encoded[i] = old->result == tensor.result ? EncodedTensor{TensorCodec::same, {}, 0} : known->encode();
      } else {
        const std::string now = source.read(i);
        tensor.result = xxh3_128_hex(now.data(), now.size());
        std::optional<std::string> before;
        if (old && old->result != tensor.result) before = parent->tensor(*old);
        encoded[i] = old && !before ? EncodedTensor{TensorCodec::same, {}, 0}
                                    : encode_tensor(tensor.shape.type, before ? std::optional<std::string_view>(*before) : std::nullopt, now);
      }
      tensor.codec = encoded[i].codec;
      tensor.bytes = tensor.codec == TensorCodec::full ? tensor.shape.bytes : encoded[i].payload.size();
      if (tensor.codec != TensorCodec::full) tensor.base = old->result;
      const std::lock_guard lock(mutex);
      if (options.progress) options.progress(1, tensor.shape.bytes);
      if (encoded[i].changed >= 0) {
        written.changed_elements += encoded[i].changed;
        written.elements += static_cast<std::int64_t>(tensor.shape.bytes) / safetensors_type_bytes(tensor.shape.type);
      }
      ++written.codecs[std::string(codec_name(tensor.codec))];
    });
    for (std::size_t at = begin; at < end; ++at) {
      const std::size_t i = order[at];
      SnapshotTensor& tensor = manifest.tensors[i];
      if (tensor.bytes == 0) continue;
      if (!object) object = store.write_object();
      tensor.offset = object->bytes();
      if (tensor.codec == TensorCodec::full) {
        const std::string now = source.read(i);  // again: whole tensors of a window are not held
        if (xxh3_128_hex(now.data(), now.size()) != tensor.result)
          fail(ErrorCode::corrupt_file, "tensor {} changed while it was pushed; push when nobody writes it", quoted_name(tensor.shape.name));
        object->write(now);
      } else {
        object->write(encoded[i].payload);
        encoded[i].payload = {};
      }
      in_object.push_back(i);
      if (object->bytes() >= kObjectBytes) end_object();
    }
  }
  end_object();
  written.content = content_digest(manifest);
  written.full_bytes = manifest.full_bytes();
  written.payload_bytes = manifest.payload_bytes();
  const std::string text = manifest_text(manifest);
  written.manifest_bytes = text.size();
  written.id = store.put_manifest(text);
  return written;
}

std::string text_called(const std::vector<std::pair<std::string, std::string>>& texts, std::string_view name) {
  for (const auto& [one, text] : texts)
    if (one == name) return text;
  return {};
}

// What differs between two config.json, but for who wrote them.
std::vector<std::string> config_differences(const std::string& before, const std::string& after) {
  nlohmann::json a = read_json_or_null(before), b = read_json_or_null(after);
  for (nlohmann::json* one : {&a, &b})
    for (const char* key : {"transformers_version", "_name_or_path"})
      if (one->is_object()) one->erase(key);
  std::vector<std::string> different;
  const auto shown = [](const nlohmann::json& json, const std::string& key) {
    return json.contains(key) ? json[key].dump(-1, ' ', true).substr(0, 60) : "nothing";
  };
  for (const nlohmann::json* one : {&a, &b})
    for (const auto& [key, value] : one->items())
      if (!(a.contains(key) && b.contains(key) && a[key] == b[key]) && (one == &a || !a.contains(key)))
        different.push_back(fmt::format("{} ({}, now {})", key, shown(a, key), shown(b, key)));
  return different;
}

// What the deltas of a folder were made against: a folder with the parent's weights, whose digests are compared with the parent's, or the store.
ArcBase arc_base(const Store& store, const fs::path& folder, const PushOptions& options) {
  if (options.parent.empty())
    fail(ErrorCode::invalid_argument, "'{}' holds deltas of arc_v1 or arc_v2; give the snapshot that they were made against as the parent", folder.string());
  if (!options.local) {
    const auto chain = std::make_shared<SnapshotChain>(store, options.parent, std::nullopt, plan_path(store, options.parent, "").ids);
    ArcBase base{fmt::format("snapshot {}", options.parent.substr(0, 12)), {}, {}};
    for (const SnapshotTensor& tensor : chain->manifest().tensors) base.tensors.push_back(tensor.shape);
    base.read = [chain](const TensorShape& shape) { return chain->tensor(*chain->manifest().find(shape.name)); };
    return base;
  }
  const auto local = std::make_shared<FolderTensors>(*options.local);
  const auto parent = std::make_shared<Snapshot>(load_snapshot(store, options.parent));
  return {fmt::format("'{}'", options.local->string()), local->list(), [local, parent, folder = options.local->string()](const TensorShape& shape) {
            const SnapshotTensor* before = parent->manifest.find(shape.name);
            std::string bytes = local->read(shape);
            if (const std::string digest = xxh3_128_hex(bytes.data(), bytes.size()); !before || before->result != digest)
              fail(ErrorCode::corrupt_file, "tensor {} of '{}' has the digest {}, and the parent snapshot {} has {}; give the parent's own folder as --base",
                   quoted_name(shape.name), folder, digest, parent->id.substr(0, 12), before ? before->result : "none");
            return bytes;
          }};
}
}  // namespace

Written push_folder(Store& store, const fs::path& folder, const PushOptions& options) {
  std::optional<FolderTensors> tensors;
  std::optional<ArcFolder> arc;
  if (is_arc_folder(folder)) arc.emplace(folder, arc_base(store, folder, options));
  else tensors.emplace(folder);
  std::vector<std::pair<std::string, std::string>> texts;
  std::vector<std::string> names = kSnapshotFiles;
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    std::error_code error;
    if (fs::is_regular_file(folder / name, error)) texts.emplace_back(name, read_file(folder / name, kMostSnapshotFileBytes));
  }
  if (text_called(texts, is_adapter_folder(folder) ? kAdapterConfig : "config.json").empty())
    fail(ErrorCode::not_found, "'{}' has no config.json, which a model's folder needs", folder.string());
  const std::vector<TensorShape>& shapes = arc ? arc->list() : tensors->list();
  const PushedTensors pushed{shapes, [&](std::size_t i) { return arc ? arc->read(shapes[i]) : tensors->read(shapes[i]); }};
  return with_context(fmt::format("pushing '{}'", folder.string()), [&] { return push_tensors(store, pushed, texts, options); });
}

Written push_tensors(Store& store, const PushedTensors& tensors, const std::vector<std::pair<std::string, std::string>>& texts, const PushOptions& options) {
  const std::string profile = options.profile.empty() ? std::string() : profile_by_name(options.profile).digest();
  const char* const config_name = text_called(texts, "config.json").empty() && !text_called(texts, kAdapterConfig).empty() ? kAdapterConfig : "config.json";
  if (const std::string own = text_called(texts, config_name); !options.parent.empty()) {
    const Snapshot parent = load_snapshot(store, options.parent);
    const SnapshotFile* config = parent.manifest.file(config_name);
    if (!config && !own.empty())
      fail(ErrorCode::invalid_argument, "it has {}, and snapshot {} has none; push it without a parent", config_name, parent.id.substr(0, 12));
    if (config)
      if (const auto different = config_differences(read_snapshot_file(store, parent.id, *config), own); !different.empty())
        fail(ErrorCode::invalid_argument, "it is another model than snapshot {}: {} differs in {}; push it without a parent", parent.id.substr(0, 12),
             config_name, fmt::join(different, ", "));
  }
  const auto lock = store.writing();
  std::vector<SnapshotFile> files;
  std::uint64_t file_bytes = 0;
  for (const auto& [name, text] : texts) {
    files.push_back({name, sha256_hex(text), text.size()});
    // A damaged one is written again.
    const std::string& digest = files.back().sha256;
    if (store.size(StoredKind::object, digest) == text.size() && store.read(StoredKind::object, digest, 0, text.size()) == text) continue;
    const auto object = store.write_object();
    object->write(text);
    object->commit();
    file_bytes += text.size();
  }
  std::sort(files.begin(), files.end(), [](const SnapshotFile& a, const SnapshotFile& b) { return a.name < b.name; });
  Written written = write_snapshot(store, tensors, std::move(files), profile, options);
  written.file_bytes = file_bytes;
  if (options.written) options.written(written);
  return written;
}

Written squash_snapshots(Store& store, const std::string& from, const std::string& to, const PushOptions& options) {
  const auto lock = options.locked ? nullptr : store.writing();
  const SnapshotChain chain(store, to, std::nullopt, plan_path(store, to, "").ids);
  PushedTensors source;
  for (const SnapshotTensor& tensor : chain.manifest().tensors) source.tensors.push_back(tensor.shape);
  source.read = [&](std::size_t i) { return chain.tensor(chain.manifest().tensors[i]); };
  PushOptions squash = options;
  squash.parent = from;
  return write_snapshot(store, source, chain.manifest().files, chain.manifest().profile, squash);
}

}  // namespace lockstep
