// A model's layer of multi-token prediction in its files.
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/model_reader.h"
#include "model/blocks/mtp_layer.h"

namespace lockstep {

// The layer of multi-token prediction: all of it or, with a note, nothing.
void ModelReader::find_mtp(std::set<std::string>& used) {
  const MtpLayer* mtp = model_->mtp();
  if (!mtp) return;
  std::set<std::string> of_layer;
  std::vector<std::string> missing;
  for (const FileTensor& file : mtp->manifest().files()) {
    if (const auto stored = StoredTensor::find(files_, mtp->manifest(), file, of_layer)) mtp_tensors_.push_back(*stored);
    else missing.push_back(file.name);
  }
  if (!missing.empty()) {
    mtp_tensors_.clear();
    notes_.push_back(fmt::format("config.json names a layer of multi-token prediction, of which {} of {} tensors are missing: {}; nothing is drafted with it",
                                 missing.size(), mtp->manifest().files().size(), first_few(missing)));
    log_info(notes_.back(), {{"path", label_}});
    return;
  }
  const auto copy = [&](const std::string& part, const std::string& of) {
    const std::string name = mtp->prefix() + part;
    if (!files_.find(name) || !files_.find(of)) return;
    mtp_copies_.emplace_back(name, of);
    of_layer.insert(name);
  };
  copy(mtp->traits().table_copy, mtp->traits().table);
  copy(mtp->traits().head_copy, mtp->traits().head);
  used.merge(of_layer);
}

void ModelReader::check_mtp_copies() const {
  for (const auto& [name, of] : mtp_copies_) check_copy(name, of, "multi-token prediction shares the embedding and the head with the model");
}

}  // namespace lockstep
