// Recall as Environments: all four kinds in turn, or one, of any length or of several, with a number of questions or with several (the task itself:
// rl/recall.h). A problem's domain is its kind.
//   const std::unique_ptr<OneTurnEnvironment> recall = make_recall_environment("recall-last-4096");
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "rl/environment.h"

namespace lockstep {

// "recall" and "recall-KIND", for lists; behind each a length may stand, or two: "recall-4096", "recall-last-4096", "recall-16..256"; and behind that how many
// questions a text has, of kinds that ask several: "recall-4096-asked-8", "recall-16..256-asked-1..32".
std::vector<std::string> recall_environment_names();
bool is_recall(std::string_view name);
// The environment of such a name; without a length it is 256 words, without a number of questions a text asks for all of its keys, 32 at most. Of two
// lengths, or two numbers, each problem has its own, each doubling between them as often.
std::unique_ptr<OneTurnEnvironment> make_recall_environment(const std::string& name);

}  // namespace lockstep
