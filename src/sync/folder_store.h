// A store in a folder, on a local disk or on one that many machines mount: STORE/objects/ab/abcd..., STORE/manifests/abcd....json,
// STORE/channels/NAME.json, STORE/KIND/NAME.json, STORE/lock. Every file is written under another name, synced and renamed (base/file.h), so a kill
// leaves the old or the new file whole.
//   const std::unique_ptr<Store> store = open_folder_store("/mnt/weights", true); store->put_manifest(text);
#pragma once
#include <filesystem>
#include <memory>

#include "sync/store.h"

namespace lockstep {

// Errors: as open_store.
std::unique_ptr<Store> open_folder_store(const std::filesystem::path& folder, bool create);

}  // namespace lockstep
