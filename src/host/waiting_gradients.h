// Gradients that no optimizer step has used, of models that are not in memory: their files, and the disk space they may take per key and in all.
// Space is claimed when a gradient is begun, by the operation of its own key, so that the model can leave memory at any time. Files of an earlier
// process are deleted at the start. Any thread.
//   WaitingGradients waiting(folder, limit); waiting.claim("m", "ann", bytes); waiting.save("m", *trained);
//   waiting.load("m", *fresh); waiting.drop("m");
#pragma once
#include <filesystem>
#include <map>
#include <mutex>
#include <string>

#include "host/key_limit.h"
#include "trained/trained_model.h"

namespace lockstep {

class WaitingGradients {
 public:
  // Errors: io.
  WaitingGradients(std::filesystem::path folder, const KeyLimit& bytes);
  ~WaitingGradients();

  // Claims disk space for a model's gradients, in place of its earlier claim. Error resource_exhausted with the key's figures; the earlier claim stays.
  void claim(const std::string& model, const std::string& owner, std::int64_t bytes);
  // Bytes claimed by all keys.
  std::int64_t claimed() const;

  // Saves the gradients of `trained` that no step has used, with an open batch. Replaces earlier files when all is written. Errors: io.
  void save(const std::string& model, TrainedModel& trained);
  bool has(const std::string& model) const;
  // Errors: corrupt_file, io; the files stay either way.
  void load(const std::string& model, TrainedModel& trained) const;
  // The files are outdated: the model in memory has changed.
  void remove_files(const std::string& model);
  // The model has no gradients any more: deletes files and claim.
  void drop(const std::string& model);

 private:
  struct Entry {
    std::string owner;
    std::int64_t bytes = 0;
    bool on_disk = false;
    TrainedModel::ParkedBatch batch = nullptr;  // in whose middle the model left
  };
  std::filesystem::path folder_of(const std::string& model) const;

  const std::filesystem::path folder_;
  const KeyLimit limit_;
  mutable std::mutex mutex_;
  std::map<std::string, Entry> entries_;  // by model
};

// What files of gradients of a model take at most: of one call in one piece, whose `data` is kept with it; of several, accumulators.
std::int64_t gradient_file_bytes(const Manifest& manifest, bool accumulators, const std::vector<TrainSequence>& data);

}  // namespace lockstep
