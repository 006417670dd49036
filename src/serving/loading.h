// Opens a model from the settings that all commands share: reads its folder, makes a runtime on a backend and the tokenizer. Also describes a folder
// and this build without running anything. Knows no command line. Any thread; a runtime is then used by one thread at a time.
//   OpenedModel opened = open_model({.model = "models/countdown-glm"});
//   GenerationService service(serving_model(opened), {});
#pragma once
#include <nlohmann/json.hpp>

#include "checkpoint/model_reader.h"
#include "serving/serving.h"

namespace lockstep {

struct RuntimeSettings {
  std::string model;  // folder, or a GGUF file
  std::string profile = "cpu-bf16w";
  std::int64_t threads = 0;     // 0: all processors
  std::string device = "cpu";   // one of device_names()
  std::string backend = "cpu";  // how the cpu runs operations: one of backend_names()
  std::string isa = "auto";     // one of instruction_set_names(): auto is the widest this machine has
  double mla_norm_eps = 0;      // 0: the family's own
  std::string ranks;            // "tp=2,dp=2,ep=2" (parallel/layout.h); empty: one. They share `threads`
  std::int64_t context = 0;     // longest sequence; 0: what the model allows, at most 65536
  bool new_mtp = false;         // ModelOptions::new_mtp: of who trains such a layer
};

// A model's weights in memory, of which another one's stand too.
struct SharedWeights {
  std::shared_ptr<const Model> model;
  std::shared_ptr<const ModelReader> reader;  // of its files; null: of none
  std::shared_ptr<const WeightSet> weights;
};

struct OpenedModel {
  std::string name;  // the folder's or the file's
  std::shared_ptr<const Model> model;
  std::shared_ptr<const ModelReader> reader;  // of its files; null: of none, and `initial` makes the weights
  std::function<WeightImages()> initial;
  std::shared_ptr<const SharedWeights> shared;  // set by share_weights; null: none
  RankLayout ranks;
  std::shared_ptr<Runtime> runtime;
  std::shared_ptr<const Tokenizer> tokenizer;  // null: the folder has none

  // All weights in fp32, made or read at each call: for who trains all parameters, or changes them. Errors: those of ModelReader;
  // resource_exhausted before anything is read when they do not fit into memory.
  WeightImages masters() const;
  // What forwards compute with, read by tensor; of shared weights the parameters that both models have alike. `part`: of what is read from files, what
  // others have in memory is not made twice (model/weight_pool.h). Errors: those of ModelReader and of the part.
  std::shared_ptr<const WeightSet> weight_set(std::uint64_t version = 0, WeightPool::Part* part = nullptr) const;
  // Bytes of it that are not another model's.
  std::int64_t own_weight_bytes() const;
  DType file_dtype() const;  // ModelReader's; f32 without files
};

// The parameters that are wanted, in fp32, from the files of a model that has other ones too, by the files' names of tensors; what they do not have is
// 0, and what is not wanted has no values.
WeightImages images_by_name(const ModelReader& reader, const Model& model, const std::function<bool(ParameterId)>& wanted);

// What a model takes of this process's memory: its weights in fp32 (OpenedModel::masters), with what reading them takes, and what forwards compute with.
struct LoadedBytes {
  std::int64_t masters = 0, weights = 0;
};
LoadedBytes loaded_bytes(const Model& model, const Profile& profile);

// What device, threads, backend and isa say. Errors: invalid_argument with the setting's name.
BackendOptions backend_options(const RuntimeSettings& settings);
// No weight is read yet. Errors: those of ModelReader and Tokenizer; resource_exhausted when what forwards compute with does not fit into memory;
// invalid_argument with the setting's name; unsupported (instruction set).
OpenedModel open_model(const RuntimeSettings& settings);
// The same from config.json and the tokenizer alone, with random initial weights (model/weights.h): the start of a training run.
OpenedModel open_untrained_model(const RuntimeSettings& settings, std::uint64_t seed, double deviation);
// The model as one that says values (model/value_head.h): of a folder with a value head that; of another the same model with a new head of zeros in
// the place of the one over the vocabulary, so that every value is 0 until it is trained. Errors: those of open_model.
OpenedModel open_value_model(const RuntimeSettings& settings);
// `values`, opened by open_value_model of the folder that `of` is of, computes over `weights` of `of`: what both have alike stands in memory once. For
// adapters: nobody changes either. A folder with a value head of its own shares nothing, for its weights are others.
//   OpenedModel values = open_value_model(settings);
//   share_weights(values, opened, base_weights);
void share_weights(OpenedModel& values, const OpenedModel& of, std::shared_ptr<const WeightSet> weights);
// With its compute copy as weights version `version`, `part` as weight_set's; logs what of the files' weights is rounded again under the profile.
ServingModel serving_model(const OpenedModel& opened, std::uint64_t version = 0, WeightPool::Part* part = nullptr);

// How the weights of its files' layer of multi-token prediction come onto a runtime of this model (ServingModel::mtp_weights); null: they have none.
std::function<std::shared_ptr<const WeightSet>()> mtp_weights_of(const OpenedModel& opened, const std::shared_ptr<Runtime>& runtime);

// A PEFT folder of an adapter over the model. Errors: those of load_adapter_folder.
std::shared_ptr<const AdapterWeights> open_adapter(const OpenedModel& opened, const std::string& folder);

// The hash that snapshots of adapters name their base by; "none" without files.
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
