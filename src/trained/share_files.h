// Writes the local ranks' shares of a model's state to their files of a checkpoint (checkpoint/share_checkpoint.h) while the model goes on, and reads them
// back. After begin() a thread a rank reads what the rank keeps where it stands, and writes it; passes go on meanwhile, but wait() must come before what
// changes the state, a step or a restore. finish() waits for all ranks, of this process and of others, and tells what they wrote. Every owner of ranks makes
// the same calls. The thread of the model alone.
//   files.begin(each, ranks, manifest, folder); ... const std::vector<ShareFileEnd> ends = files.finish(ranks);
#pragma once
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <vector>

#include "checkpoint/share_checkpoint.h"
#include "parallel/ranks.h"
#include "train/state_share.h"

namespace lockstep {

class ShareFiles {
 public:
  // Calls `work` on every local rank's thread.
  using Each = std::function<void(const std::function<void(StateShare&)>& work)>;
  // `folder` is there and all hosts see it. What an earlier begin() wrote is waited for and forgotten.
  void begin(const Each& each, const Ranks& ranks, const Manifest& manifest, const std::filesystem::path& folder);
  // Until the local ranks' files are written, or their errors are kept for finish().
  void wait() const;
  // By rank. Errors: io, of any rank; internal without a begin().
  std::vector<ShareFileEnd> finish(Ranks& ranks);

 private:
  std::map<int, std::future<ShareFileEnd>> writing_;  // by rank
};

// For Trainer::restore: a reader for each rank of what its share needs of the checkpoint in this folder. `manifest`: of the whole. `steps`: that its state has
// taken; 0: whatever it has, moments are zeros.
std::function<StateReader(StateShare&)> share_reader(const std::filesystem::path& folder, const Manifest& manifest, std::int64_t steps);

}  // namespace lockstep
