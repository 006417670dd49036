#include "fleet/publisher.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/running_digest.h"
#include "base/seconds.h"
#include "checkpoint/adapter_folder.h"
#include "fleet/store_turn.h"
#include "sync/channel.h"
#include "sync/snapshot_ways.h"
#include "sync/sparse_codec.h"

namespace lockstep {
namespace {

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

PublishedSnapshot Publisher::publish(const std::shared_ptr<const WeightSet>& weights, const Hold& hold) {
  return push(ModelTensors(runtime_->model->manifest(), runtime_->profile), weights->parameters, texts_, hold, weights_);
}

PublishedSnapshot Publisher::publish(const std::shared_ptr<const AdapterWeights>& adapter, const AdapterBase& base, const Hold& hold) {
  const SnapshotTexts texts = {{kAdapterConfig, adapter_config_text(*adapter->layout, base.name)},
                               {kAdapterBaseFile, nlohmann::json{{"weights_sha256", base.sha256}}.dump()}};
  return push(ModelTensors(adapter->layout->manifest()), adapter->parameters, texts, hold, adapter_);
}

// A tensor as it is now: which elements are not those of last time, or all bytes.
struct Publisher::TensorNow {
  RunningDigest digest;
  ElementChanges changes;
  int width = 0;       // bytes of an element
  bool whole = false;  // there was none last time, or much of it changed
  std::string bytes;   // of a whole one
  void apply(std::string& to) const {
    for (std::size_t i = 0; i < changes.positions.size(); ++i)
      std::memcpy(to.data() + changes.positions[i] * width, &changes.words[i], static_cast<std::size_t>(width));
  }
};

std::vector<Publisher::TensorNow> Publisher::read_tensors(const ModelTensors& tensors, const std::vector<Buffer>& buffers,
                                                          const std::map<std::string, Last::Tensor>& last) const {
  std::vector<TensorNow> all(tensors.shapes().size());
  std::vector<PassedTensor> list;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const TensorShape& shape = tensors.shapes()[i];
    TensorNow& now = all[i];
    now.width = static_cast<int>(safetensors_type_bytes(shape.type));
    const auto found = last.find(shape.name);
    const std::string* const before = found != last.end() && found->second.bytes.size() == shape.bytes ? &found->second.bytes : nullptr;
    if (!before) {
      now.whole = true;
      now.bytes.resize(static_cast<std::size_t>(shape.bytes));
    }
    const std::int64_t most = static_cast<std::int64_t>(shape.bytes) / now.width / kFewChanges;
    list.push_back({i, shape.type, [&now, before, most](std::int64_t first, char* words, std::size_t bytes) {
                      now.digest.update(words, bytes);
                      const std::size_t at = static_cast<std::size_t>(first * now.width);
                      if (!now.whole) {
                        each_difference(now.width, std::string_view(*before).substr(at, bytes), {words, bytes}, [&](std::int64_t element, std::uint32_t word) {
                          now.changes.positions.push_back(first + element);
                          now.changes.words.push_back(word);
                        });
                        if (std::ssize(now.changes.positions) <= most) return;
                        now.whole = true;
                        now.bytes = *before;
                        now.apply(now.bytes);
                        now.changes = {};
                      }
                      std::memcpy(now.bytes.data() + at, words, bytes);
                    }});
  }
  TensorPass(*runtime_, tensors, buffers, std::move(list)).run(*executor_);
  return all;
}

PublishedSnapshot Publisher::push(const ModelTensors& tensors, const std::vector<Buffer>& buffers, const SnapshotTexts& texts, const Hold& hold, Last& last) {
  try {
    return push_after(tensors, buffers, texts, hold, last);
  } catch (const Error& e) {
    // What is held by other channels may have been released, and pruned: the chain begins anew.
    if (!hold || last.id.empty() || e.code() != ErrorCode::not_found || store_->size(StoredKind::manifest, last.id)) throw;
    last = {};
  }
  return push_after(tensors, buffers, texts, hold, last);
}

PublishedSnapshot Publisher::push_after(const ModelTensors& tensors, const std::vector<Buffer>& buffers, const SnapshotTexts& texts, const Hold& hold,
                                        Last& last) {
  const auto began = std::chrono::steady_clock::now();
  PublishedSnapshot published;
  const bool anew = !last.id.empty() && last.texts != texts;
  if (anew) last = {};
  const std::optional<Channel> before = read_channel_record(*store_, channel_);
  const auto reading = std::chrono::steady_clock::now();
  std::vector<TensorNow> now = read_tensors(tensors, buffers, last.tensors);
  published.read_seconds = seconds_since(reading);
  PushOptions push{.parent = last.id, .profile = runtime_->profile.name, .threads = options_.threads};
  if (!last.id.empty()) {
    push.parent_tensors = [&](const TensorShape& wanted) -> std::optional<std::string> {
      const auto found = last.tensors.find(wanted.name);
      if (found == last.tensors.end() || found->second.bytes.size() != wanted.bytes) return std::nullopt;
      return found->second.bytes;
    };
  } else if (before && !options_.first_whole && !anew) {
    const Snapshot there = load_snapshot(*store_, before->target);
    if (may_follow(texts, there.manifest)) push.parent = there.id;
  }
  const std::string expected = before ? before->target : std::string();
  if (!hold && !last.id.empty() && expected != last.id)
    fail(ErrorCode::already_exists, "channel '{}' of '{}' points at {}, and this trainer published {} last; somebody else moves it", channel_, store_->label(),
         expected.empty() ? "nothing" : expected, last.id);
  push.written = [&](const Written& written) {
    if (hold) hold(*store_, written);
    else published.sequence = move_channel(*store_, channel_, written.id, options_.transition, expected).sequence;
  };
  const auto kept = [&](std::size_t i) -> const Last::Tensor& { return last.tensors.at(tensors.shapes()[i].name); };
  const auto read = [&](std::size_t i) {
    if (now[i].whole) return now[i].bytes;
    std::string bytes = kept(i).bytes;
    now[i].apply(bytes);
    return bytes;
  };
  const auto known = [&](std::size_t i) -> std::optional<PushedTensors::Known> {
    if (now[i].whole) return std::nullopt;
    return PushedTensors::Known{kept(i).digest, now[i].digest.hex(), [&, i] { return encode_tensor(tensors.shapes()[i].type, kept(i).bytes, now[i].changes); }};
  };
  published.written = in_store_turn(began, [&] { return push_tensors(*store_, {tensors.shapes(), read, known}, texts, push); });
  // After a start nobody knows how many there were.
  last.deltas = push.parent.empty() ? 0 : last.id.empty() ? options_.whole_every : last.deltas + 1;
  last.id = published.written.id;
  last.parent = push.parent;
  last.bytes = published.written.payload_bytes + published.written.manifest_bytes;
  last.has_ways = false;
  last.texts = texts;
  last.shapes = tensors.shapes();
  for (std::size_t i = 0; i < now.size(); ++i) {
    Last::Tensor& to = last.tensors[tensors.shapes()[i].name];
    if (now[i].whole) to.bytes = std::move(now[i].bytes);
    else now[i].apply(to.bytes);
    to.digest = now[i].digest.hex();
  }
  published.seconds = seconds_since(began);
  return published;
}

void Publisher::make_ways() {
  if (options_.whole_every == 0) return;
  for (Last* last : {&weights_, &adapter_})
    if (!last->has_ways) make_ways(*last);
}

void Publisher::make_ways(Last& last) const {
  SnapshotWays ways;
  bool whole = last.deltas >= options_.whole_every;
  if (!last.parent.empty()) {
    const auto before = read_ways(*store_, last.parent);
    ways.depth = before ? before->depth + 1 : 1;
    whole |= !before;  // a kill came between: nobody finds the way past it
  }
  ways.ways.push_back({last.id, last.parent, last.parent.empty() ? std::uint64_t{0} : 1, last.bytes});
  if (!whole) {
    put_ways(*store_, last.id, ways);
  } else {
    PushOptions push{.profile = runtime_->profile.name, .threads = options_.threads};
    push.written = [&](const Written& now) {  // before another process could prune it
      ways.ways.push_back({now.id, {}, 0, now.payload_bytes + now.manifest_bytes});
      put_ways(*store_, last.id, ways);
    };
    push_tensors(*store_, {last.shapes, [&](std::size_t i) { return last.tensors.at(last.shapes[i].name).bytes; }, {}}, last.texts, push);
    last.deltas = 0;
  }
  last.has_ways = true;
}

}  // namespace lockstep
