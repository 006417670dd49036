#include "serving/loading.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/choice.h"
#include "base/error.h"
#include "base/file.h"
#include "base/free_memory.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "checkpoint/adapter_folder.h"
#include "checkpoint/json_file.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/model_reader.h"
#include "checkpoint/model_source.h"
#include "checkpoint/reading_memory.h"
#include "model/value_head.h"
#include "parallel/layout.h"
#include "parallel/processes.h"
#include "serving/family_facts.h"

namespace lockstep {
namespace fs = std::filesystem;

namespace {
constexpr std::array kBackends = {BackendKind::cpu, BackendKind::deferred, BackendKind::traced, BackendKind::emulated};

// "models/a/" and "." have a name too; of a GGUF file it is that without the ending.
std::string model_name(const std::string& model) {
  std::error_code error;
  const fs::path whole = fs::canonical(model, error);
  const fs::path last = (error ? fs::path(model) : whole).filename();
  const std::string name = (last.extension() == ".gguf" ? last.stem() : last).string();
  return name.empty() ? "model" : name;
}
}  // namespace

std::vector<std::string> device_names() { return {"cpu", "cuda"}; }

std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  for (const BackendKind kind : kBackends) names.emplace_back(backend_kind_name(kind));
  return names;
}

std::vector<std::string> instruction_set_names() { return {"auto", "scalar", "avx2", "avx512"}; }

std::vector<std::string> profile_names() {
  std::vector<std::string> names;
  for (const Profile& profile : profiles()) names.push_back(profile.name);
  return names;
}

std::shared_ptr<const Tokenizer> load_tokenizer(const fs::path& model) {
  const std::unique_ptr<const FolderFiles> files = open_folder_files(model);
  if (!Tokenizer::in_folder(*files)) return nullptr;
  return std::make_shared<const Tokenizer>(Tokenizer::from_folder(*files));
}

static ModelOptions model_options(const RuntimeSettings& settings) {
  return {.mla_norm_eps = settings.mla_norm_eps,
          .new_mtp = settings.new_mtp,
          .mtp_shares_keys = settings.mtp_shares_keys,
          .mtp_normed_state = settings.mtp_normed_state};
}

static void complete(OpenedModel& opened, const RuntimeSettings& settings) {
  const Profile& profile = profile_by_name(settings.profile);
  const BackendOptions backend = backend_options(settings);
  opened.name = model_name(settings.model);
  opened.ranks = rank_layout(settings.ranks);
  opened.tokenizer = load_tokenizer(settings.model);
  const Model& model = *opened.model;
  if (opened.tokenizer && opened.tokenizer->vocab_size() > model.facts().vocabulary)
    fail(ErrorCode::corrupt_file, "'{}': the tokenizer has {} token ids, config.json says 'vocab_size' {}", settings.model, opened.tokenizer->vocab_size(),
         model.facts().vocabulary);
  opened.runtime = std::make_shared<Runtime>(backend, opened.model, profile, settings.context);
}

BackendOptions backend_options(const RuntimeSettings& settings) {
  check_choice("device", settings.device, device_names());
  const std::size_t place = check_choice("backend", settings.backend, backend_names());
  if (settings.threads < 0 || settings.threads > 4096)
    fail(ErrorCode::invalid_argument, "threads is {}, allowed is 0 (all processors) to 4096", settings.threads);
  const bool gpu = settings.device == "cuda";
  if (gpu && settings.backend != "cpu")
    fail(ErrorCode::invalid_argument, "backend is '{}' with the device cuda, allowed is to leave it out: it says how the cpu runs operations",
         settings.backend);
  if (gpu) cuda_device();  // told before a large file is read
  if (!gpu && joined_device_wire())
    fail(ErrorCode::invalid_argument, "device is '{}' with the transport nccl, which moves the memory of GPUs; allowed is --device cuda, or --transport mpi",
         settings.device);
  BackendOptions options{.kind = gpu ? BackendKind::cuda : kBackends[place], .threads = static_cast<int>(settings.threads)};
  if (const int ranks = rank_layout(settings.ranks).size(); ranks > 1)
    options.threads = std::max(1, (options.threads > 0 ? options.threads : available_processors()) / ranks);
  if (settings.isa != "auto") options.isa = instruction_set_by_name(settings.isa);
  return options;
}

OpenedModel open_model(const RuntimeSettings& settings) {
  const Profile& profile = profile_by_name(settings.profile);  // a wrong name is told before a large file is read
  rank_layout(settings.ranks);
  std::shared_ptr<const Model> model;
  try {
    model = make_model(read_json_file(*open_folder_files(settings.model), "config.json"), model_options(settings));
  } catch (const Error&) {  // reading the folder says what is wrong
  }
  if (model) {
    model->require_profile(profile);
    const std::int64_t reading = reading_bytes(model->manifest(), settings.threads > 0 ? settings.threads : available_processors());
    if (settings.device == "cpu") check_memory(loaded_bytes(*model, profile).weights + reading, fmt::format("the model '{}'", settings.model));
  }
  OpenedModel opened;
  opened.reader = ModelReader::open(settings.model, model_options(settings));
  opened.model = opened.reader->model();
  complete(opened, settings);
  return opened;
}

OpenedModel open_untrained_model(const RuntimeSettings& settings, std::uint64_t seed, double deviation) {
  OpenedModel opened;
  opened.model = make_model(read_json_file(*open_folder_files(settings.model), "config.json"), model_options(settings));
  opened.initial = [model = opened.model, seed, deviation] { return initial_weights(model->manifest(), seed, deviation); };
  complete(opened, settings);
  return opened;
}

OpenedModel open_value_model(const RuntimeSettings& settings) {
  const Json config = read_json_file(*open_folder_files(settings.model), "config.json");
  if (is_value_config(config)) return open_model(settings);
  OpenedModel opened;
  const std::shared_ptr<const ModelReader> reader = ModelReader::open(settings.model, {.mla_norm_eps = settings.mla_norm_eps});
  opened.model = make_model(value_config(config), {.mla_norm_eps = settings.mla_norm_eps});
  const std::int64_t bytes = loaded_bytes(*opened.model, profile_by_name(settings.profile)).masters;
  opened.initial = [reader, model = opened.model, bytes, name = settings.model] {
    check_memory(bytes, fmt::format("the model '{}' in fp32", name));
    return images_by_name(*reader, *model, [](ParameterId) { return true; });
  };
  complete(opened, settings);
  return opened;
}

void share_weights(OpenedModel& values, const OpenedModel& of, std::shared_ptr<const WeightSet> weights) {
  if (values.reader || !weights) return;  // a folder with a value head of its own
  values.shared = std::make_shared<const SharedWeights>(SharedWeights{of.model, of.reader, std::move(weights)});
}

ServingModel serving_model(const OpenedModel& opened, std::uint64_t version, WeightPool::Part* part) {
  refuse_value_head(*opened.model, "there are no tokens to sample");
  ServingModel serving{.name = opened.name, .runtime = opened.runtime, .tokenizer = opened.tokenizer};
  serving.weights = opened.weight_set(version, part);
  serving.mtp_weights = mtp_weights_of(opened, opened.runtime);
  return serving;
}

std::function<std::shared_ptr<const WeightSet>()> mtp_weights_of(const OpenedModel& opened, const std::shared_ptr<Runtime>& runtime) {
  if (!opened.reader || !opened.reader->has_mtp()) return nullptr;
  return [reader = opened.reader, runtime] { return reader->mtp_weight_set(runtime->backend, runtime->profile, 0); };
}

std::shared_ptr<const AdapterWeights> open_adapter(const OpenedModel& opened, const std::string& folder) {
  const LoadedAdapter read = load_adapter_folder(folder, opened.model->manifest());
  return make_adapter(opened.runtime->backend, read.layout, read.images, 0);
}

std::string base_sha256(const std::shared_ptr<const ModelReader>& reader) { return reader ? reader->weights_sha256() : "none"; }

nlohmann::ordered_json describe_model(const std::string& folder, double mla_norm_eps) {
  nlohmann::ordered_json json = to_json(model_folder_info(folder, {.mla_norm_eps = mla_norm_eps}));
  json.update(family_facts(*make_model(read_json_file(*open_folder_files(folder), "config.json"))));
  const auto tokenizer = load_tokenizer(folder);
  json["tokenizer_vocabulary"] = tokenizer ? nlohmann::ordered_json(tokenizer->vocab_size()) : nlohmann::ordered_json(nullptr);
  try {
    json["generation_config"] = to_json(read_generation_defaults(*open_folder_files(folder)));
  } catch (const Error& e) {  // the rest is true all the same
    json["generation_config"] = e.message();
  }
  return json;
}

nlohmann::ordered_json describe_build() {
  nlohmann::ordered_json json;
  json["profiles"] = nlohmann::ordered_json::array();
  for (const Profile& p : profiles())
    json["profiles"].push_back({{"name", p.name}, {"digest", p.digest()}, {"description", p.description}, {"study", p.study}});
  json["instruction_set"] = instruction_set_name(widest_instruction_set());
  json["processors"] = available_processors();
  return json;
}

}  // namespace lockstep
