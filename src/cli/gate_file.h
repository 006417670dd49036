// The file of `lockstep deploy --gate`: TOML that says what a deployment is asked before its alias moves, and what bounds it has to meet. Files that it names
// (relative to its own folder) are read too, since the server sees none of them.
//  gate.toml: questions = "questions.jsonl"   accuracy_drop = 0.02   texts = "held-out.jsonl"   logprob_drop = 0.01
//   const auto json = gate_of_file("gate.toml");   // the "gate" of PUT /v1/aliases/{alias}
// One thread.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace lockstep {

// Errors: UsageError for a key or a value that is none; invalid_argument with file and line for lines that are no questions or texts; those of reading.
nlohmann::ordered_json gate_of_file(const std::string& path);

}  // namespace lockstep
