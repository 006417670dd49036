// Opens a model from the settings that all commands share: reads its folder, makes a runtime on a backend and the tokenizer. Also describes a folder
// and this build without running anything. Knows no command line. Any thread; a runtime is then used by one thread at a time.
//   OpenedModel opened = open_model({.model = "models/countdown-glm"});
//   GenerationService service(serving_model(opened), {});
#pragma once
#include <nlohmann/json.hpp>
#include <optional>

#include "checkpoint/model_reader.h"
#include "serving/serving.h"

namespace lockstep {

struct RuntimeSettings {
  std::string model;  // folder, or a GGUF file
  std::string profile = "cpu-bf16w";
  std::int64_t threads = 0;                   // 0: all processors
  std::string device = "cpu";                 // one of device_names()
  std::string backend = "cpu";                // how the cpu runs operations: one of backend_names()
  std::string isa = "auto";                   // one of instruction_set_names(): auto is the widest this machine has
  double mla_norm_eps = 0;                    // 0: the family's own
  std::string ranks;                          // "tp=2,dp=2,ep=2" (parallel/layout.h); empty: one. They share `threads`
  std::int64_t context = 0;                   // longest sequence; 0: what the model allows, at most 65536
  bool new_mtp = false;                       // ModelOptions::new_mtp: for training such a layer
  std::optional<bool> mtp_shares_keys = {};   // ModelOptions::mtp_shares_keys
  std::optional<bool> mtp_normed_state = {};  // ModelOptions::mtp_normed_state
};

// A model's weights in memory that another model shares.
struct SharedWeights {
  std::shared_ptr<const Model> model;
  std::shared_ptr<const ModelReader> reader;  // of its files; null: of none
  std::shared_ptr<const WeightSet> weights;
};

struct OpenedModel {
  std::string name;  // the folder's or the file's
  std::shared_ptr<const Model> model;
  std::shared_ptr<const ModelReader> reader;  // of its files; null: none, and `initial` makes the weights
  std::function<WeightImages()> initial;
  std::shared_ptr<const SharedWeights> shared;  // set by share_weights; null: none
  RankLayout ranks;
  std::shared_ptr<Runtime> runtime;
  std::shared_ptr<const Tokenizer> tokenizer;  // null: the folder has none

  // All weights in fp32, made or read at each call; for training all parameters, or changing them. Errors: those of ModelReader; resource_exhausted
  // before anything is read when they do not fit into memory.
  WeightImages masters() const;
  // The weights that forwards compute with, read tensor by tensor; parameters of shared weights that both models have are taken from there. `part`: equal
  // parameters of other models in memory are shared (model/weight_pool.h). Errors: those of ModelReader and of the part.
  std::shared_ptr<const WeightSet> weight_set(std::uint64_t version = 0, WeightPool::Part* part = nullptr) const;
  // Bytes of weight_set() that this model does not share.
  std::int64_t own_weight_bytes() const;
  DType file_dtype() const;  // ModelReader's; f32 without files
};

// The wanted parameters of `model` in fp32, read from the files of another model by tensor name. Missing ones are 0; unwanted ones have no values.
WeightImages images_by_name(const ModelReader& reader, const Model& model, const std::function<bool(ParameterId)>& wanted);

// Memory that a model takes: its weights in fp32 (OpenedModel::masters) with what reading them needs, and the weights that forwards compute with.
struct LoadedBytes {
  std::int64_t masters = 0, weights = 0;
};
LoadedBytes loaded_bytes(const Model& model, const Profile& profile);

// From the settings device, threads, backend and isa. Errors: invalid_argument with the setting's name.
BackendOptions backend_options(const RuntimeSettings& settings);
// Reads no weight yet. Errors: those of ModelReader and Tokenizer; resource_exhausted when the weights of forwards do not fit into memory;
// invalid_argument with the setting's name; unsupported (instruction set).
OpenedModel open_model(const RuntimeSettings& settings);
// The same from config.json and the tokenizer alone, with random initial weights (model/weights.h): the start of a training run.
OpenedModel open_untrained_model(const RuntimeSettings& settings, std::uint64_t seed, double deviation);
// The model with a value head (model/value_head.h): the folder's own, else a new head of zeros in place of the one over the vocabulary, so every value is 0
// until it is trained. Errors: those of open_model.
OpenedModel open_value_model(const RuntimeSettings& settings);
// Lets `values`, opened by open_value_model of the same folder as `of`, use `weights` of `of`, so that equal parameters are in memory once. For adapters,
// which change neither. A folder with its own value head shares nothing, since its weights differ.
//   OpenedModel values = open_value_model(settings);
//   share_weights(values, opened, base_weights);
void share_weights(OpenedModel& values, const OpenedModel& of, std::shared_ptr<const WeightSet> weights);
// The parts of a generation service, with weights version `version`; `part` as in weight_set. Logs which file weights the profile rounds again.
ServingModel serving_model(const OpenedModel& opened, std::uint64_t version = 0, WeightPool::Part* part = nullptr);

// Loads the files' layer of multi-token prediction onto a runtime of this model (ServingModel::mtp_weights); null: they have none.
std::function<std::shared_ptr<const WeightSet>()> mtp_weights_of(const OpenedModel& opened, const std::shared_ptr<Runtime>& runtime);

// A PEFT folder of an adapter over the model. Errors: those of load_adapter_folder.
std::shared_ptr<const AdapterWeights> open_adapter(const OpenedModel& opened, const std::string& folder);

// The hash by which snapshots of adapters name their base; "none" without files.
std::string base_sha256(const std::shared_ptr<const ModelReader>& reader);

std::vector<std::string> device_names();           // cpu, cuda
std::vector<std::string> backend_names();          // cpu, deferred, traced, emulated
std::vector<std::string> instruction_set_names();  // auto, scalar, avx2, avx512
std::vector<std::string> profile_names();
// The tokenizer of a model (Tokenizer::from_folder), or null where there is none.
std::shared_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& model);

// `lockstep info`: to_json(model_folder_info(...)) and the tokenizer's size.
nlohmann::ordered_json describe_model(const std::string& folder, double mla_norm_eps = 0);

// `lockstep --version`: {"profiles": [{"name", "digest", "description", "study"}], "instruction_set", "processors"}.
nlohmann::ordered_json describe_build();

}  // namespace lockstep
