// Publishes a trainer's weights to a channel, one snapshot a step: the first whole (unless the channel has one), then deltas. It keeps the bytes of
// the tensors that it published last, so it need not read the store. Values are those of the compute copy, so whoever pulls them samples with the
// trainer's bits. One thread at a time, not the executor's.
//   Publisher publisher(open_store("/mnt/weights", true), "chat", files, runtime, executor, {});
//   const PublishedSnapshot step = publisher.publish(weights);    // or an adapter over frozen weights
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fleet/tensor_pass.h"
#include "model/adapter.h"
#include "model/runtime.h"
#include "serving/executor.h"
#include "sync/snapshot_write.h"

namespace lockstep {

struct PublisherOptions {
  std::string transition = "immediate";  // or "staged" (sync/channel.h)
  int threads = 2;
  bool first_whole = false;  // the first snapshot is whole, even if the channel already points at one
  // make_ways() writes a whole copy too of a snapshot that comes so many deltas after the last whole one; 0: it does nothing.
  std::uint64_t whole_every = 0;
};

struct PublishedSnapshot {
  Written written;
  std::uint64_t sequence = 0;            // of the channel; 0: another one holds it
  double seconds = 0, read_seconds = 0;  // of all; of reading the weights on the device's thread
};

// Names and texts of the small files that travel with weights: those of a model's folder.
using SnapshotTexts = std::vector<std::pair<std::string, std::string>>;
SnapshotTexts model_texts(const std::filesystem::path& folder);

// A file beside adapter_config.json in an adapter's snapshot, which names the weights that it was trained over.
inline constexpr const char* kAdapterBaseFile = "lockstep_base.json";

class Publisher {
 public:
  // `texts`: of the model. Error unsupported for a profile that quantises weights, when weights are published.
  Publisher(std::shared_ptr<Store> store, std::string channel, SnapshotTexts texts, std::shared_ptr<Runtime> runtime, std::shared_ptr<Executor> executor,
            const PublisherOptions& options);

  // Makes another channel hold the snapshot, while nobody else may write the store.
  using Hold = std::function<void(Store& store, const Written& now)>;
  // Publishes the weights and moves the channel to the new snapshot; with `hold`, that is called instead. Errors: those of push_tensors and
  // move_channel; already_exists when somebody else moved the channel.
  PublishedSnapshot publish(const std::shared_ptr<const WeightSet>& weights, const Hold& hold = {});
  // `base`: weights_sha256 of the weights under it, and what adapter_config.json calls them.
  struct AdapterBase {
    std::string sha256, name;
  };
  PublishedSnapshot publish(const std::shared_ptr<const AdapterWeights>& adapter, const AdapterBase& base, const Hold& hold = {});
  // For who will read the last snapshots from nothing, as ways to them (sync/snapshot_ways.h). Errors: those of push_tensors.
  void make_ways();
  Store& store() const { return *store_; }
  const std::string& channel() const { return channel_; }

 private:
  // Weights and adapters are chains of their own. Of other small files (an adapter of another rank) a chain begins anew.
  struct Last {
    struct Tensor {
      std::string bytes, digest;
    };
    std::string id, parent;               // of what was published last; empty: nothing yet
    std::uint64_t bytes = 0, deltas = 0;  // of its manifest and payloads; since the last whole copy
    bool has_ways = true;
    SnapshotTexts texts;
    std::vector<TensorShape> shapes;
    std::map<std::string, Tensor> tensors;  // by name
  };
  struct TensorNow;
  std::vector<TensorNow> read_tensors(const ModelTensors& tensors, const std::vector<Buffer>& buffers, const std::map<std::string, Last::Tensor>& last) const;
  PublishedSnapshot push(const ModelTensors& tensors, const std::vector<Buffer>& buffers, const SnapshotTexts& texts, const Hold& hold, Last& last);
  void make_ways(Last& last) const;
  PublishedSnapshot push_after(const ModelTensors& tensors, const std::vector<Buffer>& buffers, const SnapshotTexts& texts, const Hold& hold, Last& last);
  std::shared_ptr<Store> store_;
  std::string channel_;
  const SnapshotTexts texts_;
  std::shared_ptr<Runtime> runtime_;
  std::shared_ptr<Executor> executor_;
  const PublisherOptions options_;
  Last weights_, adapter_;
};

}  // namespace lockstep
