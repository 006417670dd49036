// Starts supervised fine-tuning on a JSONL file or on an environment's reference completions (`lockstep train sft`), from a command, a server or
// a test.
//   SftJob job; job.config.run.name = "my-run"; job.data = "my.jsonl"; const SftSummary summary = run_sft_job(job);
// Knows no command line. One thread; any thread may stop it (RunSettings::stop).
#pragma once
#include "runs/chat_data.h"
#include "runs/sft_run.h"

namespace lockstep {

struct SftJob {
  SftConfig config;
  std::string data, environment;         // one of them: a file (runs/sft_data.h), or the name of an environment
  std::int64_t compact_at = 0;           // tokens of a context window, of an environment of many turns (rl/trajectory/play.h); 0: there is one
  double chat_share = 0;                 // of an environment's problems, in the chat template as conversations with tool calls
  std::string end_token, chat_template;  // empty: the model's own
  ChatReading reading;                   // how messages and tools are read: as the server reads them
  std::string eval;                      // a file of sequences for evaluation only; empty: none
  std::optional<double> eval_share;      // of the data, held out for that; not said: a tenth from 20 sequences on, unless `eval` is
};

// Errors: those of run_sft and of reading the data.
SftSummary run_sft_job(const SftJob& job);

}  // namespace lockstep
