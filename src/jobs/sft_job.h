// Supervised fine-tuning from a JSONL file or from an environment's reference completions (`lockstep train sft`), as a command, a server or a test
// starts it. Knows no command line. One thread; any thread may stop it (RunSettings::stop).
//   SftJob job; job.config.run.name = "my-run"; job.data = "my.jsonl"; const SftSummary summary = run_sft_job(job);
#pragma once
#include "runs/chat_data.h"
#include "runs/sft_run.h"

namespace lockstep {

struct SftJob {
  SftConfig config;
  std::string data, environment;       // one of them: a file (runs/sft_data.h), or the name of an environment
  std::string end_token, chat_template;  // empty: the model's own
  ChatReading reading;                 // how messages and tools are read: as the server reads them
  std::string eval;                    // a file of sequences that are measured and not learned; empty: none
  std::optional<double> eval_share;    // of the data, held out for that; not said: a tenth from 20 sequences on, unless `eval` is
};

// Errors: those of run_sft and of reading the data.
SftSummary run_sft_job(const SftJob& job);

}  // namespace lockstep
