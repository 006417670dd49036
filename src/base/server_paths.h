// Messages for the operator name files where they lie; a client is told the file's name alone. Plain function.
//   without_server_paths("'/srv/state/checkpoints/x/model.safetensors' is truncated")  ->  "'.../model.safetensors' is truncated"
#pragma once
#include <string>
#include <string_view>

namespace lockstep {

// Every absolute path in a message becomes "..." and its last part: what begins with a slash at the beginning of a word and has another
// slash. In quotes it may hold spaces. Paths of our own HTTP routes (/v1/, /api/, /training/, /inference/, /hot_load/) stay.
std::string without_server_paths(std::string_view message);

}  // namespace lockstep
