// Adapters that clients name as a model, beside the base: PEFT folders, loaded at the start of the server or while it runs. Each is immutable; a
// request that has begun with one keeps it when the name is given to another. Knows no HTTP. Any thread.
//   NamedAdapters adapters(runtime, executor, "countdown-glm", {.root = "adapters"}); adapters.load("mine", "adapters/mine");
//   if (const auto found = adapters.find("mine")) request.adapter = found->weights;
#pragma once
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/memory_ledger.h"
#include "model/adapter.h"
#include "model/runtime.h"
#include "serving/executor.h"

namespace lockstep {

struct NamedAdapterOptions {
  std::filesystem::path root;  // folders below it may be loaded while the server runs; empty: none
  std::int64_t most = 64;      // at once
  WorkClass priority = WorkClass::live;
  std::shared_ptr<MemoryLedger> ledger = nullptr;  // for claiming their memory; null: none
};

struct NamedAdapter {
  std::string name;
  std::filesystem::path folder;
  std::shared_ptr<const AdapterWeights> weights;
  double loaded = 0;  // Unix seconds
};

class NamedAdapters {
 public:
  // `taken`: the base's name, which no adapter may have. `ranks` share the model: each has a share of every adapter.
  NamedAdapters(std::shared_ptr<Runtime> runtime, std::shared_ptr<Executor> executor, std::string taken, NamedAdapterOptions options, std::int64_t ranks = 1);

  // Errors: those of load_adapter_folder; invalid_argument for a name that is not 1 to 128 letters, digits, '-', '_' and '.';
  // already_exists without `replace`; resource_exhausted (too many, or no memory).
  NamedAdapter load(const std::string& name, const std::filesystem::path& folder, bool replace = false);
  // The same for a client: `folder` is relative to options.root, or below it. Errors: unsupported without a root; not_found outside it.
  NamedAdapter load_below_root(const std::string& name, const std::string& folder, bool replace);
  // Error not_found.
  void unload(const std::string& name);
  std::optional<NamedAdapter> find(const std::string& name) const;
  std::vector<NamedAdapter> list() const;  // by name
  std::vector<std::string> names() const;

 private:
  std::shared_ptr<Runtime> runtime_;
  std::shared_ptr<Executor> executor_;
  const std::string taken_;
  const NamedAdapterOptions options_;
  const std::int64_t ranks_;
  mutable std::mutex mutex_;
  std::vector<NamedAdapter> adapters_;  // by name
  std::uint64_t next_version_ = 1;
};

}  // namespace lockstep
