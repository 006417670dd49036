// Removes a server's absolute paths from messages for clients, who see only file names; operators see full paths. Pure function.
//   without_server_paths("'/srv/state/x/model.safetensors' is truncated") == "'.../model.safetensors' is truncated";
#pragma once
#include <string>
#include <string_view>

namespace lockstep {

// Replaces every absolute path in a message by "..." and its last part. A path begins with a slash at a word's beginning and has another
// slash; in quotes it may hold spaces. Paths of our own HTTP routes (/v1/, /api/, /training/, /inference/, /hot_load/) stay.
std::string without_server_paths(std::string_view message);

}  // namespace lockstep
