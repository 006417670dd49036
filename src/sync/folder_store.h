// A store in a folder of a disk, or of a disk that many machines mount:
//   STORE/objects/ab/abcd...   STORE/manifests/abcd....json   STORE/channels/NAME.json   STORE/KIND/NAME.json   STORE/lock
// Every file is written under another name, synced and renamed (base/file.h), so that a kill leaves what was there or the new file whole.
#pragma once
#include <filesystem>
#include <memory>

#include "sync/store.h"

namespace lockstep {

// Errors: as open_store.
std::unique_ptr<Store> open_folder_store(const std::filesystem::path& folder, bool create);

}  // namespace lockstep
