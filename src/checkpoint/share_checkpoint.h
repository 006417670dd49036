// A training checkpoint in shares: a folder with a file of each rank that wrote it (checkpoint/share_file.h) and state.json, the index, which names them
// with their sizes and the digests of their tables, and has a digest of the state that is the same in every layout (checkpoint/state_sum.h).
// Each rank that goes on, in any layout, opens it and reads what it needs of each parameter, block by block.
//   AtomicFolder folder(path, AtomicFolder::Existing::replace); each rank: write_share_file(folder.partial(), rank, origin, pieces);
//   commit_shares(folder, checkpoints, head, "dp=2", ends, {.keep_last = 3});
//   ShareCheckpoint checkpoint(path, manifest); const std::vector<float> image = checkpoint.read(StatePart::master, place);
// All hosts see the folder. Knows no ranks and no trainer.
#pragma once
#include <map>
#include <utility>
#include <vector>

#include "base/byte_file.h"
#include "base/file.h"
#include "checkpoint/checkpoint_head.h"
#include "checkpoint/share_file.h"
#include "checkpoint/training_checkpoint.h"
#include "model/manifest.h"

namespace lockstep {

// Writes the index of the files that ranks 0, 1, ... have written to folder.partial() and puts the checkpoint in place, as save_checkpoint does. Errors: io;
// not_found for files that are not there, as where a host has another disk under that path.
std::filesystem::path commit_shares(AtomicFolder& folder, const std::filesystem::path& checkpoints, const CheckpointHead& head, const std::string& layout,
                                    const std::vector<ShareFileEnd>& ends, const CheckpointOptions& options);

class ShareCheckpoint {
 public:
  // Reads the index and the tables. Errors: corrupt_file, which names every file that is missing, has another length or another table; another model.
  ShareCheckpoint(const std::filesystem::path& folder, const Manifest& manifest);

  const CheckpointHead& head() const { return head_; }
  bool has(StatePart part, ParameterId id) const { return pieces_.contains({part, id}); }
  // These rows of a share in the image of the whole share, of which the other rows are zeros; zeros too where has() is false and the part is a moment.
  // Errors: corrupt_file for a block with another hash, and for elements that no file has.
  std::vector<float> read(StatePart part, const RowsPlace& rows);
  std::uint64_t bytes_read() const { return bytes_read_; }  // of values

 private:
  struct StoredPiece {
    std::size_t file = 0;
    RowsPlace place;
    std::uint64_t at = 0;
    std::vector<std::uint64_t> blocks;  // their hashes
  };
  std::string open_file(const Json& told, std::size_t number);
  void take_table(const Json& table, std::size_t file, const Manifest& manifest);

  std::filesystem::path folder_;
  CheckpointHead head_;
  std::vector<ByteFile> files_;
  std::vector<std::string> tables_;  // until they are read
  std::map<std::pair<StatePart, ParameterId>, std::vector<StoredPiece>> pieces_;
  std::uint64_t bytes_read_ = 0;
};

}  // namespace lockstep
