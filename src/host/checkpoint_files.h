// Reads and writes the folders of checkpoints: training checkpoints, PEFT folders of adapters, Hugging Face folders of all parameters. The server's
// named adapters can be read like checkpoints, and so can those that are snapshots of a store. The records of checkpoints are in host/checkpoints.h.
//   files.write(on, record, trained, precision); fresh.restore(files.read(on, record, fresh.manifest()), true);
#pragma once
#include "checkpoint/model_folder.h"
#include "checkpoint/training_checkpoint.h"
#include "host/checkpoints.h"
#include "host/memory_room.h"

namespace lockstep {

class CheckpointFiles {
 public:
  CheckpointFiles(TrainingCommons& commons, Checkpoints& checkpoints, CheckpointSnapshots& snapshots, MemoryRoom& memory)
      : commons_(commons), checkpoints_(checkpoints), snapshots_(snapshots), memory_(memory) {}

  // Error invalid_argument: another numerics profile than this server's.
  void check_profile_of(const CheckpointRecord& record) const;
  // Of a snapshot its values, those of the compute copy. Errors: invalid_argument for weights that an adapter was merged into, corrupt_file, not_found.
  TrainingCheckpoint read(const OnExecutor& on, const CheckpointRecord& from, const Manifest& manifest) const;
  SamplerWeights weights(const OnExecutor& on, const CheckpointRecord& from) const;
  // From a folder with our own files, of a model with these settings.
  SamplerWeights read_weights(const OnExecutor& on, const std::filesystem::path& folder, const ModelSettings& settings) const;
  // Whether an adapter can be merged into whole weights in this precision. Errors: invalid_argument, unsupported.
  void check_merge(const ModelSettings& settings, const std::string& precision) const;
  // Writes the folder of `record`, in our own format or a merged Hugging Face folder. Sets `bytes` of the result. Returns files of a replaced checkpoint that
  // are still in the folder. Errors: io.
  std::vector<std::filesystem::path> write(const OnExecutor& on, CheckpointRecord& record, TrainedModel& trained, const std::string& precision) const;
  // A sampler's checkpoint as others read it: a Hugging Face folder in fp32 (merged_base: as it is), of an adapter a PEFT folder. Returns the digest
  // of the numerics profile that it was written under; empty: not known. Another thread than the executor's.
  std::string write_for_others(const CheckpointRecord& record, const std::filesystem::path& folder) const;

 private:
  TrainingCheckpoint read_own(const CheckpointRecord& from, const Manifest& manifest) const;
  void write_external(const OnExecutor& on, const CheckpointRecord& record, const WeightImages& masters) const;
  void write_merged(const CheckpointRecord& record, const WeightImages& adapter, const std::string& precision) const;
  NamedAdapter adapter_named(const std::string& name) const;
  // How whole weights are written for others: with the base's tokenizer where it has one.
  SaveOptions folder_options(DType dtype) const;

  TrainingCommons& commons_;
  Checkpoints& checkpoints_;
  CheckpointSnapshots& snapshots_;
  MemoryRoom& memory_;
};

}  // namespace lockstep
