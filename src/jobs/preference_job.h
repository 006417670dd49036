// Starts a run that learns from a JSONL file of preferences (`lockstep train preference`), from a command, a server or a test.
//   PreferenceJob job; job.config.preference.loss = "dpo"; job.data = "my.jsonl"; const PreferenceSummary summary = run_preference_job(job);
// Knows no command line. One thread; any thread may stop it (RunSettings::stop).
#pragma once
#include "runs/chat_data.h"
#include "runs/preferences/preference_run.h"

namespace lockstep {

struct PreferenceJob {
  PreferenceConfig config;
  std::string data;                      // a file (runs/preferences/preference_data.h)
  std::string end_token, chat_template;  // empty: the model's own
  ChatReading reading;                   // how messages and tools are read: as the server reads them
  std::string eval;                      // a file for evaluation only; empty: none
  std::optional<double> eval_share;      // of the data, held out for that; not said: a tenth from 20 lines on, unless `eval` is
};

// Errors: those of run_preference and of reading the data.
PreferenceSummary run_preference_job(const PreferenceJob& job);

}  // namespace lockstep
