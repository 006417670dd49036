#include "serving/named_adapters.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/adapter_folder.h"
#include "serving/plain_name.h"

namespace lockstep {
namespace {
auto adapter_place(auto& adapters, const std::string& name) {
  return std::lower_bound(adapters.begin(), adapters.end(), name, [](const NamedAdapter& a, const std::string& n) { return a.name < n; });
}

std::vector<std::string> names_of(const std::vector<NamedAdapter>& adapters) {
  std::vector<std::string> names;
  for (const NamedAdapter& adapter : adapters) names.push_back(adapter.name);
  return names;
}
}  // namespace

NamedAdapters::NamedAdapters(std::shared_ptr<Runtime> runtime, std::shared_ptr<Executor> executor, std::string taken, NamedAdapterOptions options,
                             std::int64_t ranks)
    : runtime_(std::move(runtime)), executor_(std::move(executor)), taken_(std::move(taken)), options_(std::move(options)), ranks_(ranks) {
  if (options_.ledger) options_.ledger->describe("adapters", "unload some (POST /v1/unload_lora_adapter)");
}

NamedAdapter NamedAdapters::load(const std::string& name, const std::filesystem::path& folder, bool replace) {
  check_plain_name("the name of an adapter", name);
  const auto check_room = [&] {
    const auto at = adapter_place(adapters_, name);
    const bool there = at != adapters_.end() && at->name == name;
    if (name == taken_ || (there && !replace)) fail(ErrorCode::already_exists, "there is a model '{}' already", name);
    if (!there && static_cast<std::int64_t>(adapters_.size()) >= options_.most)
      fail(ErrorCode::resource_exhausted, "there are {} adapters, allowed are {}; unload some", adapters_.size(), options_.most);
  };
  std::uint64_t version = 0;
  {
    const std::lock_guard lock(mutex_);
    check_room();
    version = next_version_++;
  }
  std::int64_t bytes = 0;
  const std::int64_t copies = ranks_ > 1 ? 1 + ranks_ : 1;  // ranks that share the model have their shares beside, none larger than the whole
  MemoryLedger::Claim room;
  LoadedAdapter read = load_adapter_folder(folder, runtime_->model->manifest(), [&](const AdapterLayout& layout) {
    for (const Parameter& parameter : layout.manifest().parameters()) bytes += parameter.size() * static_cast<std::int64_t>(sizeof(float));
    if (options_.ledger)
      room = options_.ledger->claim("adapters", {}, std::max<std::int64_t>(2, copies) * bytes,
                                    fmt::format("reading the adapter '{}'", name));  // the file's numbers, and the device's
  });
  NamedAdapter adapter{name, folder, nullptr, std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count()};
  adapter.weights = executor_->run(options_.priority, [&] { return make_adapter(runtime_->backend, read.layout, read.images, version); }).get();
  read.images = {};
  if (options_.ledger && room.try_resize(copies * bytes)) adapter.weights = with_claim(std::move(adapter.weights), std::move(room));
  {
    const std::lock_guard lock(mutex_);
    check_room();
    const auto at = adapter_place(adapters_, name);
    if (at != adapters_.end() && at->name == name) *at = adapter;  // requests that have the old one keep it
    else adapters_.insert(at, adapter);
  }
  log_info("an adapter was loaded", {{"name", name}, {"rank", read.layout->settings().rank}});
  return adapter;
}

NamedAdapter NamedAdapters::load_below_root(const std::string& name, const std::string& folder, bool replace) {
  if (options_.root.empty())
    fail(ErrorCode::unsupported, "adapters are not loaded while this server runs; --adapter-folder names the folder whose folders may be");
  std::error_code error;
  const std::filesystem::path root = std::filesystem::canonical(options_.root, error);
  if (error) fail(ErrorCode::io, "the folder of adapters cannot be read: {}", error.message());
  const std::filesystem::path whole = std::filesystem::canonical(root / folder, error);
  const auto differs = std::mismatch(root.begin(), root.end(), whole.begin(), whole.end());
  if (error || folder.empty() || differs.first != root.end() || whole == root)
    fail(ErrorCode::not_found, "lora_path is no folder below the server's folder of adapters");
  return load(name, whole, replace);
}

void NamedAdapters::unload(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto at = adapter_place(adapters_, name);
  if (at == adapters_.end() || at->name != name)
    fail(ErrorCode::not_found, "there is no adapter '{}'{}", name.substr(0, 80), did_you_mean(name.substr(0, 80), names_of(adapters_)));
  adapters_.erase(at);  // requests that have it keep it
}

std::optional<NamedAdapter> NamedAdapters::find(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto at = adapter_place(adapters_, name);
  if (at == adapters_.end() || at->name != name) return std::nullopt;
  return *at;
}

std::vector<NamedAdapter> NamedAdapters::list() const {
  const std::lock_guard lock(mutex_);
  return adapters_;
}

std::vector<std::string> NamedAdapters::names() const { return names_of(list()); }

}  // namespace lockstep
