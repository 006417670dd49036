// `lockstep eval drafts`, a kind of `eval` (cli/eval_command.cpp).
//   return eval_drafts_command({"--model", "models/m", "--data", "my.jsonl"});
#pragma once
#include "cli/commands.h"

namespace lockstep {

int eval_drafts_command(const Arguments& arguments);

}  // namespace lockstep
