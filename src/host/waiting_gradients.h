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

  // Room for the gradients of a model, which replaces what it had. Error resource_exhausted with the key's own figures; it keeps what it had.
  void claim(const std::string& model, const std::string& owner, std::int64_t bytes);
  // Claimed, by all keys.
  std::int64_t claimed() const;

  // Everything of `trained` that no step has taken, with the batch in whose middle it is. What stood there is replaced when all is written. Errors: io.
  void save(const std::string& model, TrainedModel& trained);
  bool has(const std::string& model) const;
  // Errors: corrupt_file, io; the files stay either way.
  void load(const std::string& model, TrainedModel& trained) const;
  // The files are old: the model in memory has moved on.
  void remove_files(const std::string& model);
  // There is no gradient of it any more: files and room go.
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
