// Reads a model's weights from its files, a tensor at a time: directly into the compute copies of a profile, or all in fp32. Names, shapes and types
// are checked when the files are opened, values when they are read. Knows no family: names and shapes come from the manifest. Several threads may
// read; weight_set is called by the one that has the backend.
//   const auto reader = ModelReader::open("models/countdown-glm");
//   const auto weights = reader->weight_set(runtime.backend, runtime.profile, 0);
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/stored_tensor.h"
#include "model/model.h"
#include "model/weight_pool.h"
#include "model/weights.h"

namespace lockstep {

// How weights of one kind are stored, and which profiles compute with them as they are.
struct StoredFormat {
  StoredType type;
  bool few_bits = false;
  std::vector<std::string> exact_under;  // study profiles left out
};

class ModelReader {
 public:
  // model.safetensors, else the shards of model.safetensors.index.json; or a GGUF file. Errors: those of load_model_folder (checkpoint/model_folder.h)
  // that need no values.
  static std::shared_ptr<const ModelReader> open(const std::filesystem::path& path, const ModelOptions& options = {});
  // `label` stands for the path in messages.
  ModelReader(std::string label, std::shared_ptr<const Model> model, ModelFiles files);

  const std::shared_ptr<const Model>& model() const { return model_; }
  DType file_dtype() const;                                         // bf16: every tensor is BF16 but those that stay fp32 in a bf16 file; else f32
  const std::vector<std::string>& notes() const { return notes_; }  // what was passed over
  std::string format() const { return files_.format(); }            // "safetensors", "GGUF version 3"
  std::vector<StoredFormat> kinds() const;
  // One line for each kind of few bits of which this profile computes with other numbers than the files'.
  std::vector<std::string> rounded_again(const Profile& profile) const;

  // In the order of the manifest.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  // All values, row-major. Errors: corrupt_file for one that is not finite.
  void read(const StoredTensor& tensor, std::vector<float>& values) const;
  // Calls take(values) for consecutive runs of rows.
  void read_rows(const StoredTensor& tensor, const std::function<void(std::span<const float>)>& take) const;
  // A tensor's values into the images of any manifest that has it as `file`, some rows after others.
  void scatter(const StoredTensor& tensor, const Manifest& manifest, const FileTensor& file, WeightImages& images) const;
  // Beside the images some rows of a tensor are in memory (checkpoint/reading_memory.h).
  WeightImages masters() const;
  // The compute copies, with the bits of make_weight_set(masters()). Beside them a few parts of a tensor are in memory, one a thread.
  // `part`: shares equal parameters with other models in memory; null: nothing is shared.
  std::shared_ptr<const WeightSet> weight_set(Backend& backend, const Profile& profile, std::uint64_t version, WeightPool::Part* part = nullptr) const;
  std::string weights_sha256() const;

  // The same of the model's layer of multi-token prediction (Model::mtp), which no hash above knows of. In the order of its manifest; empty where
  // the files lack one of its tensors, as a note says, and then nothing else may be asked. Error corrupt_file, of the numbers, where they hold copies
  // of the embedding or the head that differ from the model's.
  const std::vector<StoredTensor>& mtp_tensors() const { return mtp_tensors_; }
  bool has_mtp() const { return !mtp_tensors_.empty(); }
  WeightImages mtp_masters() const;
  std::shared_ptr<const WeightSet> mtp_weight_set(Backend& backend, const Profile& profile, std::uint64_t version) const;
  std::string mtp_sha256() const;

 private:
  void check_aliases(std::set<std::string>& used) const;
  void check_copy(const std::string& name, const std::string& of, const std::string& why) const;
  void find_mtp(std::set<std::string>& used);
  void check_mtp_copies() const;
  void check_names(const std::set<std::string>& used, const std::vector<std::string>& missing);

  std::string label_;
  std::shared_ptr<const Model> model_;
  ModelFiles files_;
  std::vector<StoredTensor> tensors_, mtp_tensors_;
  std::vector<std::pair<std::string, std::string>> mtp_copies_;  // tensor of the files, and that of the model which it copies
  std::vector<std::string> notes_;
};

}  // namespace lockstep
