// A model's layer of multi-token prediction in its files.
#include <algorithm>
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

WeightImages ModelReader::mtp_masters() const {
  check_mtp_copies();
  return masters_of(model_->mtp()->manifest(), mtp_tensors_);
}

std::shared_ptr<const WeightSet> ModelReader::mtp_weight_set(Backend& backend, const Profile& profile, std::uint64_t version) const {
  check_mtp_copies();
  return weight_set_of(model_->mtp()->manifest(), mtp_tensors_, backend, profile, version);
}

std::string ModelReader::mtp_sha256() const { return sha256_of(model_->mtp()->manifest(), mtp_tensors_); }

const Manifest& ModelReader::manifest_of(const StoredTensor& tensor) const {
  const bool of_mtp = std::any_of(mtp_tensors_.begin(), mtp_tensors_.end(), [&](const StoredTensor& t) { return &t == &tensor; });
  return of_mtp ? model_->mtp()->manifest() : model_->manifest();
}

}  // namespace lockstep
