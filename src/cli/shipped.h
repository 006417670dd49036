// Finds the models/ and recipes/ that come with the program, in the checkout (build/lockstep) or the installed package (bin/lockstep beside
// them), from any folder. A path of the user's own always wins.
//   shipped("models", "countdown-glm");                 // "countdown-glm" if that is here, else ".../models/countdown-glm"
//   shipped("recipes", "recipes/countdown_rl.toml")     // the same for a path as help and README write it
// Knows no command. Any thread.
#pragma once
#include <string>
#include <string_view>

namespace lockstep {

// `given` if it exists, or if nothing shipped has its name; else the path of the shipped one in `folder` ("models", "recipes").
// `given` is NAME or FOLDER/NAME; a name with another "/", or one that begins with a dot, is the user's own and is returned as it is.
std::string shipped(std::string_view folder, const std::string& given);

// How the running program is called from here: "build/lockstep" in a checkout, "lockstep" elsewhere.
std::string program_name();

}  // namespace lockstep
