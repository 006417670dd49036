// Serves a folder of snapshots read-only: GET /store/objects/..., /store/manifests/..., /store/channels/... and other records, with ranges and ETags,
// for `lockstep snapshot pull http://HOST/store` and mirrors. Any thread.
//   add_store_routes(routes, "/mnt/weights");
#pragma once
#include <filesystem>

#include "api/routes.h"

namespace lockstep {

// Errors: not_found when the folder is no store.
void add_store_routes(Routes& routes, const std::filesystem::path& folder);

}  // namespace lockstep
